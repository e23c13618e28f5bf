#include "train/config_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/sizes.h"
#include "data/mixture.h"

namespace longstride {
namespace {

using Type = ConfigType;

// The field of a key: `member` is written as in `config.training.steps`.
#define LS_FIELD(member) [](TrainConfig& config) -> ConfigField { return &config.member; }

// Maximum of steps and of tokens of a sequence; times the largest batch it fits in 63 bits.
constexpr double kLargestCount = 1e12;
constexpr double kLargestBatch = 1e6;

const ConfigSection kSections[] = {
    {"model", "The model to train: exactly one of `path` and `preset`."},
    {"data", "The training data. The formats are described in [data.md](data.md)."},
    {"training", "Length of sequences and of the run, chunks and pages."},
    {"attention",
     "Which keys each layer's queries attend to. Sparse layers attend to their chunk and to the "
     "best earlier pages: [sparse.md](sparse.md)."},
    {"optimizer", "AdamW with decoupled weight decay."},
    {"lora",
     "Low-rank adapters in place of the model's own parameters, which are frozen: "
     "[finetune.md](finetune.md). Without `rank` and `path` there are none."},
    {"schedule", "The learning rate schedule."},
    {"checkpoint", "What is saved, where and when."},
    {"metrics", "The record of every step: [metrics.md](metrics.md)."},
    {"eval",
     "Loss and accuracy on other data during the run, as lines of their own in the metrics file. "
     "It takes no memory of its own and does not change the result."},
    {"device", "Where it runs."},
    {"memory",
     "Where keys, values, their gradients and the optimizer's state may be kept. The result does "
     "not depend on it. Transfers to and from a GPU overlap compute."},
    {"numerics",
     "Settings that decide the bits of the result, in addition to `training.chunk` and "
     "`training.page`."},
    {"parallel",
     "Several processes, started by `mpirun` or `srun` ([parallel.md](parallel.md)). Their number "
     "changes no bit of the result, except by `parallel.heads`, and a run may be resumed with "
     "another."},
};

// Named limits, which keep the table readable.
ConfigLimits any() { return {}; }
ConfigLimits one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
ConfigLimits at_least(double x) { return {.at_least = x}; }
ConfigLimits over(double x) { return {.over = x}; }
ConfigLimits between(double x, double y) { return {.at_least = x, .at_most = y}; }
ConfigLimits share() { return {.at_least = 0, .under = 1}; }
ConfigLimits count_from(double x) { return {.at_least = x, .at_most = kLargestCount}; }
ConfigLimits multiples_of(std::int64_t n, double most) {
  return {.at_least = static_cast<double>(n), .at_most = most, .multiple_of = n};
}
ConfigLimits bytes() { return {.at_least = 0, .at_most = 1e18}; }
ConfigLimits bytes_above_zero() { return {.at_most = 1e18, .over = 0}; }
constexpr bool kRequired = true, kOptional = false;

const std::vector<ConfigKey>& table() {
  static const std::vector<ConfigKey> keys = {
      {"model", "path", Type::kPath,
       "Hugging Face model directory: config.json and safetensors files.", LS_FIELD(model.path)},
      {"model", "preset", Type::kText, "Name of a built-in shape, trained from random weights.",
       LS_FIELD(model.preset)},
      {"model", "dtype", Type::kChoice,
       "Type in which the weights of a preset are stored; a directory keeps its own.",
       LS_FIELD(model.dtype), one_of({"f32", "bf16", "f16"})},
      {"model", "window", Type::kSize,
       "Tokens that a query of a preset attends to, itself included; 0 uses the preset's own. A "
       "directory sets its own.",
       LS_FIELD(model.window), count_from(0)},
      {"model", "quantize", Type::kChoice,
       "Quantizes the projections of every layer when they are loaded, as bitsandbytes does; they "
       "cannot be trained then. A directory that bitsandbytes quantized needs no setting "
       "([finetune.md](finetune.md)).",
       LS_FIELD(model.quantize), one_of({"nf4", "int8"}), kOptional, "as they are stored"},
      {"model", "train", Type::kTexts,
       "Parameters to train, as globs over their Hugging Face names, for instance "
       "`model.layers.2[4-7].*`; `*` also matches dots. The others are frozen: they have no "
       "gradient and no optimizer state, and layers below the lowest trained one have no backward "
       "pass.",
       LS_FIELD(model.train), any(), kOptional, "all"},
      {"model", "freeze", Type::kTexts,
       "Likewise parameters that are not trained, though `train` names them.",
       LS_FIELD(model.freeze), any(), kOptional, "none"},
      {"model", "rope_type", Type::kChoice,
       "How positions are scaled, in place of the rope type of config.json or of the preset; "
       "default: not at all. Saved models say so ([finetune.md](finetune.md)).",
       LS_FIELD(model.rope.type), one_of({"default", "linear", "llama3", "yarn"}), kOptional,
       "the model's"},
      {"model", "rope_theta", Type::kNumber, "Base of the rotary frequencies.",
       LS_FIELD(model.rope.theta), over(1), kOptional, "the model's"},
      {"model", "rope_factor", Type::kNumber,
       "How many times longer the context becomes (linear, llama3, yarn).",
       LS_FIELD(model.rope.factor), at_least(1), kOptional, "the model's"},
      {"model", "rope_original_positions", Type::kSize,
       "The context before scaling (llama3, yarn).", LS_FIELD(model.rope.original_positions),
       count_from(1), kOptional,
       "the model's original_max_position_embeddings, else max_position_embeddings"},
      {"data", "path", Type::kPaths,
       "Prepared directories, or token files; or, for text, files and directories of files.",
       LS_FIELD(data.path), any(), kRequired},
      {"data", "mix", Type::kNumbers,
       "A share for each entry of `path`, such as `[0.7, 0.3]`: so many of the sequences come from "
       "it, and it is repeated as often as that takes. The shares are relative.",
       LS_FIELD(data.mix), between(Mixture::kLeastShare, Mixture::kMostShare), kOptional,
       "none: all data of an epoch once"},
      {"data", "format", Type::kChoice,
       "Raw little-endian tokens of 4 or 2 bytes, plain text by bytes, or Megatron's .bin and "
       ".idx. "
       "Prepared directories say it themselves.",
       LS_FIELD(data.format), one_of({"u32", "u16", "text", "megatron"}), kOptional, "`\"u32\"`"},
      {"data", "document_token", Type::kInteger,
       "Token that ends a document (token files). Without it and an index, a file is one document.",
       LS_FIELD(data.document_token), between(0, 2147483647)},
      {"data", "document_index", Type::kPath,
       "File of raw little-endian u64: where each document of the token file starts, in tokens.",
       LS_FIELD(data.document_index)},
      {"data", "loss_mask", Type::kPath,
       "File of one byte per token of the token file: 0 where the token is not a target.",
       LS_FIELD(data.loss_mask)},
      {"data", "pack", Type::kPacking,
       "How sequences are filled with documents, which do not attend to each other. true: cut "
       "wherever a sequence is full. \"whole\": none is cut that fits in a sequence. false: one "
       "document per sequence.",
       LS_FIELD(data.pack)},
      {"data", "long", Type::kChoice,
       "Documents longer than the context, if `pack` is \"whole\" or false: split into several "
       "sequences, cut after the first one, or drop.",
       LS_FIELD(data.long_documents), one_of({"split", "cut", "drop"})},
      {"data", "shuffle", Type::kBool,
       "A new order of the sequences in every epoch, drawn from the seed.", LS_FIELD(data.shuffle)},
      {"training", "context", Type::kSize, "Maximum tokens of a sequence.",
       LS_FIELD(training.context), count_from(2), kRequired},
      {"training", "chunk", Type::kSize,
       "Tokens processed at a time; a multiple of the page. auto takes what is fastest by "
       "prediction "
       "for the model, the context, the device's name and its total memory, and 1024 on a CPU; a "
       "resumed run keeps its chunk.",
       LS_FIELD(training.chunk), multiples_of(16, 1 << 30), kOptional, "auto"},
      {"training", "page", Type::kSize, "Tokens of a page of keys and values.",
       LS_FIELD(training.page), multiples_of(16, 1 << 16)},
      {"training", "keep_chunks", Type::kInteger,
       "How many of a sequence's last chunks keep their activations for the backward pass; the "
       "others are recomputed.",
       LS_FIELD(training.keep_chunks), count_from(1)},
      {"training", "rebuild_feed_forward", Type::kBool,
       "Recompute the feed-forward part's gate and up in the backward pass instead of keeping "
       "them: less workspace for a few percent more time, the same bits.",
       LS_FIELD(training.rebuild_feed_forward)},
      {"training", "nonfinite", Type::kChoice,
       "What to do if the loss or a gradient is not finite: stop the run, or skip the step's "
       "update (at most ten in a row).",
       LS_FIELD(training.nonfinite), one_of({"stop", "skip"})},
      {"training", "steps", Type::kInteger, "Optimizer steps of the whole run.",
       LS_FIELD(training.steps), count_from(1), kRequired},
      {"training", "batch", Type::kInteger,
       "Sequences per step, one after the other; the loss is averaged over all their targets.",
       LS_FIELD(training.batch), between(1, kLargestBatch)},
      {"training", "seed", Type::kInteger,
       "Seed of the random weights of a preset, of the data order and of stochastic rounding.",
       LS_FIELD(training.seed), at_least(0)},
      {"attention", "kind", Type::kChoice,
       "model: as config.json says. sparse: every layer without a window is sparse.",
       LS_FIELD(attention.kind), one_of({"model", "sparse"})},
      {"attention", "layers", Type::kTexts,
       "The kind of each layer, in place of the model's: `dense`, `window(1024)`, `sparse` or "
       "`sparse(32)` (with another budget), with `*24` for 24 layers. A shorter list is repeated.",
       LS_FIELD(attention.layers), any(), kOptional, "the model's"},
      {"attention", "budget", Type::kInteger,
       "Earlier pages that a page of queries attends to, the forced ones included.",
       LS_FIELD(attention.budget), count_from(0)},
      {"attention", "sinks", Type::kInteger, "The document's first pages, always attended to.",
       LS_FIELD(attention.sinks), count_from(0)},
      {"attention", "recent", Type::kInteger,
       "The last pages before the chunk, always attended to.", LS_FIELD(attention.recent),
       count_from(0)},
      {"attention", "union_pages", Type::kInteger,
       "The most different earlier pages that a chunk attends to in a layer: it bounds transfers.",
       LS_FIELD(attention.union_pages), count_from(0)},
      {"attention", "summary", Type::kChoice,
       "What stands for a page's keys when pages are selected. means: means of consecutive keys. "
       "outliers: the keys that are farthest from the page's mean, as they are, and the mean of "
       "the others; they find single tokens. auto: outliers, or means if summary_tokens is the "
       "page.",
       LS_FIELD(attention.summary), one_of({"auto", "outliers", "means"})},
      {"attention", "summary_tokens", Type::kInteger,
       "Keys per vector of a page's summary, a divisor of the page: fewer find more, and take more "
       "memory and time.",
       LS_FIELD(attention.summary_tokens), count_from(1), kOptional,
       "the page, at most 128; for outliers a quarter of it, beyond 256K tokens half of it"},
      {"attention", "scoring", Type::kChoice,
       "How pages are scored. mass: attention weights of every head, summed. focus: their fourth "
       "powers, so that a page that one query needs comes before one that many glance at. oomb: "
       "as mass, with the queries of a group of heads summed first.",
       LS_FIELD(attention.scoring), one_of({"focus", "mass", "oomb"})},
      {"attention", "kv_dtype", Type::kTexts,
       "`numerics.kv_dtype` of each layer: `auto`, `fp8` or `int8`, with `*24` for 24 layers. A "
       "shorter list is repeated.",
       LS_FIELD(attention.kv_dtype), any(), kOptional,
       "the same of all layers but the first, which has the type of compute"},
      {"attention", "kv_gradient_dtype", Type::kTexts,
       "`numerics.kv_gradient_dtype` of each layer, likewise: `f32`, `bf16`, `fp8` or `int8`.",
       LS_FIELD(attention.kv_gradient_dtype), any(), kOptional,
       "the same of all layers; but bf16 of those with a window of at most 8 chunks, where it is "
       "in 8 bits: they have few gradient pages at once"},
      {"optimizer", "learning_rate", Type::kNumber, "Peak learning rate.",
       LS_FIELD(optimizer.learning_rate), over(0)},
      {"optimizer", "beta1", Type::kNumber, "Decay of the first moment.", LS_FIELD(optimizer.beta1),
       share()},
      {"optimizer", "beta2", Type::kNumber, "Decay of the second moment.",
       LS_FIELD(optimizer.beta2), share()},
      {"optimizer", "epsilon", Type::kNumber, "Added to the root of the second moment.",
       LS_FIELD(optimizer.epsilon), over(0)},
      {"optimizer", "weight_decay", Type::kNumber,
       "Decoupled decay of the weights, times the learning rate.", LS_FIELD(optimizer.weight_decay),
       at_least(0)},
      {"optimizer", "clip_norm", Type::kNumber,
       "Gradients are clipped to this global norm; 0 does not clip.", LS_FIELD(optimizer.clip_norm),
       at_least(0)},
      {"optimizer", "state", Type::kChoice,
       "Type of the two moments. 8bit: as bitsandbytes stores them, in a dynamic code with one "
       "fp32 "
       "magnitude per 256 elements, 2.03 bytes per parameter instead of 8; parameters below 4096 "
       "elements keep fp32.",
       LS_FIELD(optimizer.state), one_of({"fp32", "8bit"})},
      {"optimizer", "masters", Type::kBool,
       "Keep an fp32 copy of bf16 and f16 weights, 4 bytes per parameter, which updates change. "
       "false: the update is computed in fp32 from the weight and rounded stochastically, "
       "depending "
       "only on training.seed, update, parameter and element: without bias, and with the same bits "
       "in every run. No effect on f32 weights.",
       LS_FIELD(optimizer.masters)},
      {"optimizer", "learning_rates", Type::kTexts,
       "Peak learning rates of some parameters, as `glob=number`, for instance "
       "`lm_head.weight=1e-5`; the last one that matches counts. 0 freezes nothing: see "
       "`model.freeze`.",
       LS_FIELD(optimizer.learning_rates), any(), kOptional, "none"},
      {"optimizer", "weight_decays", Type::kTexts,
       "Likewise weight decays. Without one, norms and biases have none.",
       LS_FIELD(optimizer.weight_decays), any(), kOptional, "none"},
      {"lora", "rank", Type::kInteger, "Rank of the adapters.", LS_FIELD(lora.rank),
       between(1, 4096), kOptional, "no adapters, or that of `path`"},
      {"lora", "alpha", Type::kNumber,
       "Adapters are scaled by alpha / rank, or with `rslora` by alpha / sqrt(rank).",
       LS_FIELD(lora.alpha), over(0), kOptional, "twice the rank, or that of `path`"},
      {"lora", "rslora", Type::kBool, "Scale adapters by alpha / sqrt(rank).",
       LS_FIELD(lora.rslora)},
      {"lora", "dropout", Type::kNumber,
       "Share of the elements of an adapter's input that are dropped in training.",
       LS_FIELD(lora.dropout), between(0, 0.9)},
      {"lora", "targets", Type::kTexts,
       "Projections with an adapter: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
       "down_proj.",
       LS_FIELD(lora.targets), any(), kOptional, "all seven"},
      {"lora", "layers", Type::kTexts, "Layers with adapters, as `3` or `8-15`.",
       LS_FIELD(lora.layers), any(), kOptional, "all"},
      {"lora", "also_train", Type::kTexts,
       "Modules that are trained whole beside the adapters (PEFT's modules_to_save), by the end of "
       "their names: embed_tokens, lm_head, norm, input_layernorm, ... A head that is tied to the "
       "embedding stays tied.",
       LS_FIELD(lora.also_train), any(), kOptional, "none"},
      {"lora", "path", Type::kPath,
       "PEFT directory of an adapter to begin with; the other keys are then its own, except "
       "`dropout`.",
       LS_FIELD(lora.path), any(), kOptional, "new adapters, which change nothing at first"},
      {"schedule", "kind", Type::kChoice, "How the learning rate decays after the warm-up.",
       LS_FIELD(schedule.kind), one_of({"cosine", "linear", "constant"})},
      {"schedule", "warmup_steps", Type::kInteger,
       "Steps over which the learning rate rises linearly to its peak.",
       LS_FIELD(schedule.warmup_steps), count_from(0)},
      {"schedule", "final_fraction", Type::kNumber,
       "Learning rate of the last step as a fraction of the peak (cosine and linear).",
       LS_FIELD(schedule.final_fraction), between(0, 1)},
      {"checkpoint", "directory", Type::kPath, "Where the run's output goes; created if missing.",
       LS_FIELD(checkpoint.directory), any(), kRequired},
      {"checkpoint", "every", Type::kInteger, "Steps between saves; 0 saves only at the end.",
       LS_FIELD(checkpoint.every), count_from(0)},
      {"checkpoint", "keep", Type::kInteger,
       "How many step directories to keep; older ones are removed. 0 keeps all.",
       LS_FIELD(checkpoint.keep), count_from(0)},
      {"checkpoint", "snapshot", Type::kSize,
       "Bytes of host memory for a copy of weights and optimizer state, which is written while "
       "training continues; auto takes the free memory less a reserve. If not everything fits, "
       "tensors already in host memory are written during the next step, whose update waits for "
       "that; if the tensors on a GPU do not fit, training waits for the whole save.",
       LS_FIELD(checkpoint.snapshot), bytes(), kOptional, "auto"},
      {"metrics", "file", Type::kPath, "JSONL file, one line per step.", LS_FIELD(metrics.file),
       any(), kOptional, "metrics.jsonl in checkpoint.directory"},
      {"eval", "path", Type::kPaths,
       "Files or directories with data that are not trained on, in `data.format` and with "
       "`data.document_token`. Of a prepared directory, its eval split.",
       LS_FIELD(eval.path), any(), kOptional, "none"},
      {"eval", "document_index", Type::kPath, "As `data.document_index`, for `path`.",
       LS_FIELD(eval.document_index)},
      {"eval", "loss_mask", Type::kPath, "As `data.loss_mask`, for `path`.",
       LS_FIELD(eval.loss_mask)},
      {"eval", "every", Type::kInteger,
       "Steps between evaluations, the first one before the first step; 0 evaluates only at the "
       "end, which is done in any case.",
       LS_FIELD(eval.every), count_from(0)},
      {"eval", "samples", Type::kInteger,
       "Evaluates only the first so many sequences, in the order of the files; 0: all.",
       LS_FIELD(eval.samples), count_from(0)},
      {"device", "name", Type::kChoice, "The backend; auto takes cuda if there is a GPU.",
       LS_FIELD(device.name), one_of({"auto", "cpu", "cuda"})},
      {"device", "threads", Type::kInteger,
       "Threads of the CPU backend; 0 takes all. The result does not depend on it.",
       LS_FIELD(device.threads), between(0, 4096)},
      {"memory", "gpu", Type::kSize,
       "Bytes of device memory (a GPU's, or the CPU's) for everything, a GPU's driver and "
       "libraries "
       "included, at most what is free; auto takes what is free, less a reserve on a GPU.",
       LS_FIELD(memory.gpu), bytes_above_zero(), kOptional, "auto"},
      {"memory", "host", Type::kSize,
       "Bytes of host memory for offloaded pages and activations; optimizer state that may go to "
       "disk gets what they leave. auto takes the free memory less a reserve, and none if the "
       "device is the CPU. "
       "Disk buffers may come on top.",
       LS_FIELD(memory.host), bytes(), kOptional, "auto"},
      {"memory", "disk", Type::kSize,
       "Bytes of disk for pages and optimizer state that fit in neither; auto takes what is free "
       "at `disk_path` less a reserve.",
       LS_FIELD(memory.disk), bytes()},
      {"memory", "disk_path", Type::kPath,
       "A directory on a local disk; the space is reserved at the start and released at the end.",
       LS_FIELD(memory.disk_path), any()},
      {"memory", "optimizer", Type::kChoice,
       "Where the optimizer's state and master weights are kept: 12 bytes per parameter, 8 if the "
       "weights are f32, less with `optimizer.state` and `optimizer.masters`. Offloaded, they pass "
       "through the device at every update. host: all in "
       "host memory, in addition to the pages' `host`. disk: in what pages leave of `host`, the "
       "rest at `disk_path`. auto: on the device if the whole run fits there; else as disk, if "
       "there is a `disk_path` with enough space; else in host memory.",
       LS_FIELD(memory.optimizer), one_of({"auto", "device", "host", "disk"})},
      {"memory", "activations", Type::kChoice,
       "Activations of earlier chunks, which the backward pass needs. auto: those that take "
       "longest to recompute stay on the device where it has room, or go to at most half of `host` "
       "and back, if computing hides the copies; pages go to host memory where that saves time; "
       "and "
       "a chunk retains less for its own backward pass where that makes room. If device and host "
       "share their memory, activations take at most half of what is free. device: as auto, and "
       "none go to host memory. recompute: none are retained. The result is the same.",
       LS_FIELD(memory.activations), one_of({"auto", "device", "recompute"})},
      {"numerics", "compute", Type::kChoice,
       "Type of activations, and of keys and values unless kv_dtype is set; auto: bf16 if the "
       "device computes in it, else f32. "
       "Sums, parameter gradients and the optimizer are f32 either way.",
       LS_FIELD(numerics.compute), one_of({"auto", "f32", "bf16"})},
      {"numerics", "kv_gradient_dtype", Type::kChoice,
       "Type in which the gradients of keys and values accumulate across chunks. bf16 halves "
       "memory and transfers; every chunk's addition is then rounded stochastically, depending "
       "only on training.seed, step and position: without bias, and with the same bits in every "
       "run. int8 halves it again, with a scale per token and head, rounded likewise: for sparse "
       "layers, whose hot pages stay in f32. In dense layers its error grows with the number of "
       "chunks: experimental. fp8 takes as much and is less accurate "
       "([sparse.md](sparse.md#pages-in-8-bits)).",
       LS_FIELD(numerics.kv_gradient_dtype), one_of({"f32", "bf16", "fp8", "int8"})},
      {"numerics", "kv_dtype", Type::kChoice,
       "Type of the pages that keep keys and values. auto: that of compute. int8 takes half the "
       "memory of bf16, and half the transfers: 8 bits per element and a scale per token and head. "
       "fp8 (e4m3) takes as much and is less accurate. The first layer keeps the "
       "type "
       "of compute, because most of the error would be its own, unless attention.kv_dtype says "
       "otherwise ([sparse.md](sparse.md#pages-in-8-bits)). Attention works on wide copies of a "
       "segment's pages, which take memory of their own: models of few layers, or with long "
       "chunks, "
       "gain nothing. Every pass reads the rounded keys and values, of the chunk itself too.",
       LS_FIELD(numerics.kv_dtype), one_of({"auto", "fp8", "int8"})},
      {"numerics", "hot_pages", Type::kInteger,
       "Where gradient pages are in 8 bits: how many of a sparse layer's pages keep theirs in f32, "
       "on the device, those that the most chunks attend to; at most a 16th of the sequence's. "
       "Additions to these are most of what would be rounded.",
       LS_FIELD(numerics.hot_pages), count_from(0)},
      {"numerics", "determinism", Type::kChoice,
       "exact: the same input gives the same bits in every run. fast: on a GPU, attention's "
       "backward pass may use kernels whose order of addition varies. On a GPU the algorithms of "
       "matrix products are chosen once, by measurement; checkpoints carry the choice, and "
       "kernels.json in `$LONGSTRIDE_CACHE` (else `~/.cache/longstride`) keeps it for other runs "
       "on the machine: without that file, new runs may choose, and round, differently.",
       LS_FIELD(numerics.determinism), one_of({"exact", "fast"})},
      {"parallel", "data", Type::kInteger,
       "Into how many groups of sequences training.batch is cut. Gradients of each are summed from "
       "zero, and the groups' sums added in their order, so the result depends on it, and not on "
       "the number of processes: as many as groups, or a divisor of that, each with a copy of the "
       "weights and a part of the optimizer's state.",
       LS_FIELD(parallel.data), between(1, 4096)},
      {"parallel", "pipeline", Type::kInteger,
       "Into how many stages the layers are cut. Each is a process of its own, and chunks flow "
       "through them.",
       LS_FIELD(parallel.pipeline), between(1, 4096)},
      {"parallel", "heads", Type::kInteger,
       "How many processes share the heads of every layer: a divisor of the model's KV heads. Each "
       "has the pages of its heads and attends with them, and does everything else for its part of "
       "a chunk's tokens. The result is rounded differently than in one process, and is the same "
       "in every run.",
       LS_FIELD(parallel.heads), between(1, 4096)},
      {"parallel", "link", Type::kChoice,
       "How tensors go from process to process. nccl: from GPU to GPU. mpi: through host memory. "
       "auto: nccl where every process has a GPU of its own and NCCL can be opened by all, else "
       "mpi.",
       LS_FIELD(parallel.link), one_of({"auto", "nccl", "mpi"})},
      {"parallel", "timeout", Type::kNumber,
       "Seconds without progress after which a process is given up, and all end.",
       LS_FIELD(parallel.timeout), between(1, 1e6)},
  };
  return keys;
}

#undef LS_FIELD

std::string type_name(ConfigType type) {
  switch (type) {
    case Type::kBool:
      return "true or false";
    case Type::kInteger:
      return "integer";
    case Type::kSize:
      return "size";
    case Type::kNumber:
      return "number";
    case Type::kChoice:
      return "one of";
    case Type::kText:
      return "string";
    case Type::kPath:
      return "path";
    case Type::kPaths:
      return "path or array of paths";
    case Type::kTexts:
      return "string or array of strings";
    case Type::kNumbers:
      return "array of numbers";
    case Type::kPacking:
      return "true, false or \"whole\"";
  }
  return "";
}

}  // namespace

std::string ConfigKey::type_text() const {
  std::string text = type_name(type);
  if (type == Type::kChoice)
    return fmt::format("{}\"{}\"", limits.choices.size() > 1 ? text + " " : "",
                       fmt::join(limits.choices, "\", \""));
  // The largest count is of no interest in the table; exceeding it is an error with a message.
  const auto shown = [&](const std::optional<double>& bound) {
    return bound.has_value() && *bound < kLargestCount;
  };
  const auto value = [&](double x) {
    return type == Type::kSize ? format_count(static_cast<std::int64_t>(x)) : fmt::format("{}", x);
  };
  if (limits.multiple_of != 1) text += fmt::format(", multiple of {}", limits.multiple_of);
  if (shown(limits.at_least) && shown(limits.at_most))
    return text + fmt::format(", {} to {}", value(*limits.at_least), value(*limits.at_most));
  if (limits.at_least) text += ", at least " + value(*limits.at_least);
  if (limits.over) text += ", over " + value(*limits.over);
  if (limits.under) text += ", under " + value(*limits.under);
  if (shown(limits.at_most)) text += ", at most " + value(*limits.at_most);
  return text;
}

std::span<const ConfigSection> config_sections() { return kSections; }

std::span<const ConfigKey> config_keys() { return table(); }

const ConfigKey* find_config_key(std::string_view section, std::string_view key) {
  for (const ConfigKey& k : table())
    if (section == k.section && key == k.key) return &k;
  return nullptr;
}

}  // namespace longstride
