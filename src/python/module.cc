// The extension module longstride._core: api::Session for Python. python/longstride/engine.py is
// what users see; it checks and converts arrays before they come here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "api/session.h"
#include "api/train_run.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace nb = nanobind;

namespace longstride::python {
namespace {

using Integers = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Longs = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatArray = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

template <class T>
auto span_of(const std::optional<T>& array) {
  using E = typename T::Scalar;
  return array ? std::span<const E>(array->data(), array->size()) : std::span<const E>();
}

FloatArray to_array(std::vector<float> values) {
  auto held = std::make_unique<std::vector<float>>(std::move(values));
  float* data = held->data();
  const std::size_t size = held->size();
  nb::capsule owner(held.release(),
                    [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return FloatArray(data, {size}, owner);
}

// The arrays of a call, and the batch that points into them.
struct Arrays {
  Integers tokens;
  std::optional<Integers> targets;
  std::optional<Longs> documents;
  std::optional<Floats> weights, old_logprobs;
  double clip_below = 0.2, clip_above = 0.2, divisor = 0;

  std::vector<std::int32_t> copied = {};
  api::Batch batch() {
    api::Batch b;
    b.tokens = {tokens.data(), tokens.size()};
    if (targets) {
      copied.assign(targets->data(), targets->data() + targets->size());
      b.targets = &copied;
    }
    b.documents = span_of(documents);
    b.weights = span_of(weights);
    b.old_logprobs = span_of(old_logprobs);
    b.clip_below = clip_below;
    b.clip_above = clip_above;
    b.divisor = divisor;
    return b;
  }
};

// Serves signals and the user's callback between chunks. What they raise ends the call.
class Polling {
 public:
  explicit Polling(nb::object callback) : callback_(std::move(callback)) {}

  bool operator()(const SequenceProgress& progress) {
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) return raised_ = true;
    if (callback_.is_none()) return false;
    // A call per chunk and phase, not per layer.
    if (progress.chunk == chunk_ && progress.phase == phase_) return false;
    chunk_ = progress.chunk;
    phase_ = progress.phase;
    try {
      nb::dict told;
      told["phase"] = std::string(progress.phase);
      told["chunk"] = progress.chunk;
      told["chunks"] = progress.chunks;
      told["done"] = progress.done;
      callback_(told);
    } catch (nb::python_error& e) {
      e.restore();
      return raised_ = true;
    }
    return false;
  }
  bool raised() const { return raised_; }

 private:
  nb::object callback_;
  std::int64_t chunk_ = -1;
  std::string phase_;
  bool raised_ = false;
};

// Runs f(poll) without the interpreter's lock; raises what a callback or a signal raised.
template <class F>
api::Outcome without_lock(nb::object on_progress, const F& f) {
  Polling polling(std::move(on_progress));
  try {
    const nb::gil_scoped_release released;
    return f([&](const SequenceProgress& progress) { return polling(progress); });
  } catch (const Interrupted&) {
    if (polling.raised()) throw nb::python_error();
    throw;
  }
}

nb::tuple result_of(api::Outcome outcome) {
  return nb::make_tuple(outcome.loss, outcome.targets, to_array(std::move(outcome.logprobs)));
}

// A view of a parameter, without a copy; it keeps the session alive.
nb::object view_of(nb::handle session, const Device& device, const ParameterSpec& spec,
                   const View& view) {
  nb::dlpack::dtype type{};
  switch (view.dtype()) {
    case DType::kF32:
      type = nb::dtype<float>();
      break;
    case DType::kBF16:
      type = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
      break;
    case DType::kF16:
      type = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
      break;
    default:
      throw Error(fmt::format("{} is quantized, and has no view", spec.name),
                  "views are of parameters in f32, bf16 and f16");
  }
  std::vector<std::size_t> shape;
  std::vector<std::int64_t> strides;
  for (int d = 0; d < spec.shape.rank(); ++d)
    shape.push_back(static_cast<std::size_t>(spec.shape[d]));
  std::int64_t stride = 1;
  strides.resize(shape.size());
  for (int d = view.shape().rank() - 1; d >= 0; --d) {
    strides[static_cast<std::size_t>(d)] = stride;
    stride *= view.shape()[d];
  }
  const int kind = device.shares_host_memory() ? nb::device::cpu::value : nb::device::cuda::value;
  return nb::cast(nb::ndarray<nb::array_api>(view.data(), shape.size(), shape.data(), session,
                                             strides.data(), type, kind, 0));
}

nb::dict views(nb::handle self, bool gradients) {
  auto& session = nb::cast<api::Session&>(self);
  const ParameterSet& set = gradients ? session.gradients() : session.weights();
  nb::dict result;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const ParameterSpec& spec = set.specs()[static_cast<std::size_t>(i)];
    const View view = set.view(i);
    const bool plain = view.present() && !spec.derived &&
                       (view.dtype() == DType::kF32 || view.dtype() == DType::kBF16 ||
                        view.dtype() == DType::kF16);
    if (plain && (gradients || spec.trainable))
      result[spec.name.c_str()] = view_of(self, session.device(), spec, view);
  }
  return result;
}

nb::object to_python(const OrderedJson& json) {
  return nb::module_::import_("json").attr("loads")(dump_json(json));
}

// Calls a Python function from the thread that trains. What it raises waits until the run has
// ended: C++ in between saves first.
class Callbacks {
 public:
  explicit Callbacks(nb::object receiver) : receiver_(std::move(receiver)) {}

  template <class MakeArgument>
  void call(const char* name, const MakeArgument& make_argument) {
    const nb::gil_scoped_acquire held;
    if (stopping()) return;
    try {
      receiver_.attr(name)(make_argument());
    } catch (nb::python_error& e) {
      raised_ = std::make_unique<nb::python_error>(e);
    }
  }
  // Also serves signals.
  bool should_stop() {
    const nb::gil_scoped_acquire held;
    if (!stopping() && PyErr_CheckSignals() != 0) raised_ = std::make_unique<nb::python_error>();
    return stopping();
  }
  bool stopping() const { return raised_ != nullptr; }
  void raise() const {
    if (raised_) throw nb::python_error(*raised_);
  }

 private:
  nb::object receiver_;
  std::unique_ptr<nb::python_error> raised_;
};

// `settings` on top of the file, if one is named; `resume` is empty, "true" or a directory.
bool train(const std::string& file, const std::vector<std::string>& settings,
           const std::string& resume, nb::object receiver) {
  Callbacks callbacks(std::move(receiver));
  const auto json_to = [&](const char* name) {
    return [&callbacks, name](const OrderedJson& json) {
      callbacks.call(name, [&] { return to_python(json); });
    };
  };
  std::int64_t step = -1, sequence = -1, chunk = -1;
  const api::RunListener listener{
      .on_start = json_to("start"),
      .on_progress =
          [&](const StepProgress& p) {
            if (p.step == step && p.sequence == sequence && p.in_sequence.chunk == chunk) return;
            step = p.step;
            sequence = p.sequence;
            chunk = p.in_sequence.chunk;
            callbacks.call("progress", [&] {
              return to_python({{"step", p.step},
                                {"total_steps", p.total_steps},
                                {"sequence", p.sequence},
                                {"sequences", p.sequences},
                                {"phase", std::string(p.in_sequence.phase)},
                                {"chunk", p.in_sequence.chunk},
                                {"chunks", p.in_sequence.chunks},
                                {"done", p.done}});
            });
          },
      .on_step = json_to("step"),
      .on_eval = json_to("eval"),
      .on_save =
          [&](const std::filesystem::path& path) {
            callbacks.call("save", [&] { return to_python({{"path", path.string()}}); });
          },
      .should_stop = [&] { return callbacks.should_stop(); }};
  bool done = false;
  {
    const nb::gil_scoped_release released;
    const TrainConfig config =
        file.empty() ? parse_train_config("", "train", std::filesystem::current_path(), settings)
                     : load_train_config(file, settings);
    const ResumeChoice choice{!resume.empty(), resume == "true" ? "" : resume};
    done = api::train(config, choice, listener);
  }
  callbacks.raise();
  return done;
}

// Messages go to `receiver(level, text)`, from any thread.
void send_messages_to(nb::object receiver) {
  auto held = std::make_shared<nb::object>(std::move(receiver));
  set_log_sink([held](std::string_view text) {
    if (Py_IsInitialized() == 0) return;
    const nb::gil_scoped_acquire lock;
    try {
      while (text.ends_with('\n')) text.remove_suffix(1);
      constexpr std::string_view kWarning = "warning: ";
      const bool warning = text.starts_with(kWarning);
      if (warning) text.remove_prefix(kWarning.size());
      (*held)(warning, std::string(text));
    } catch (nb::python_error& e) {
      e.discard_as_unraisable("longstride's messages");
    }
  });
}

// Raises longstride.Error for a user's mistake, InternalError for ours.
void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  const auto raise = [](const char* type, auto&&... arguments) {
    nb::object raised = nb::module_::import_("longstride.errors").attr(type);
    nb::object value = raised(arguments...);
    PyErr_SetObject(raised.ptr(), value.ptr());
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    raise("Error", std::string(e.what()), std::string(e.hint()));
  } catch (const InternalError& e) {
    raise("InternalError", std::string(e.what()));
  }
}

}  // namespace
}  // namespace longstride::python

NB_MODULE(_core, m) {
  using namespace longstride;
  using namespace longstride::python;
  nb::register_exception_translator(translate);
  nb::class_<api::Session>(m, "Session", nb::dynamic_attr())
      .def(nb::init<const std::vector<std::string>&>(), nb::arg("settings"),
           nb::call_guard<nb::gil_scoped_release>())
      .def(
          "backward",
          [](api::Session& self, Integers tokens, std::optional<Integers> targets,
             std::optional<Longs> documents, std::optional<Floats> weights,
             std::optional<Floats> old_logprobs, double clip_below, double clip_above,
             double divisor, nb::object on_progress) {
            Arrays arrays{tokens,       targets,    documents,  weights,
                          old_logprobs, clip_below, clip_above, divisor};
            const api::Batch batch = arrays.batch();
            return result_of(without_lock(std::move(on_progress), [&](const api::Poll& poll) {
              return self.backward(batch, poll);
            }));
          },
          nb::arg("tokens"), nb::arg("targets").none(), nb::arg("documents").none(),
          nb::arg("weights").none(), nb::arg("old_logprobs").none(), nb::arg("clip_below"),
          nb::arg("clip_above"), nb::arg("divisor"), nb::arg("on_progress").none())
      .def(
          "score",
          [](api::Session& self, Integers tokens, std::optional<Integers> targets,
             std::optional<Longs> documents, nb::object on_progress) {
            Arrays arrays{tokens, targets, documents, std::nullopt, std::nullopt};
            const api::Batch batch = arrays.batch();
            return result_of(without_lock(std::move(on_progress), [&](const api::Poll& poll) {
              return self.score(batch, poll);
            }));
          },
          nb::arg("tokens"), nb::arg("targets").none(), nb::arg("documents").none(),
          nb::arg("on_progress").none())
      // `weights_of` gets the log-probabilities and returns the weights.
      .def(
          "backward_of",
          [](api::Session& self, Integers tokens, std::optional<Integers> targets,
             std::optional<Longs> documents, nb::object weights_of, nb::object on_progress) {
            Arrays arrays{tokens, targets, documents, std::nullopt, std::nullopt};
            const api::Batch batch = arrays.batch();
            return result_of(without_lock(std::move(on_progress), [&](const api::Poll& poll) {
              return self.backward_of(
                  batch,
                  [&](std::span<const float> logprobs) {
                    const nb::gil_scoped_acquire held;
                    const nb::object made =
                        weights_of(to_array({logprobs.begin(), logprobs.end()}));
                    const auto array = nb::cast<Floats>(made);
                    return std::vector<float>(array.data(), array.data() + array.size());
                  },
                  poll);
            }));
          },
          nb::arg("tokens"), nb::arg("targets").none(), nb::arg("documents").none(),
          nb::arg("weights_of"), nb::arg("on_progress").none())
      .def("zero_gradients", &api::Session::zero_gradients,
           nb::call_guard<nb::gil_scoped_release>())
      .def("gradient_norm", &api::Session::gradient_norm, nb::call_guard<nb::gil_scoped_release>())
      .def("update", &api::Session::update, nb::arg("lr"), nb::arg("clip_norm").none(),
           nb::call_guard<nb::gil_scoped_release>())
      .def("save", &api::Session::save, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("updates", &api::Session::updates)
      .def_prop_ro("context",
                   [](const api::Session& self) { return self.plan().config.training.context; })
      .def_prop_ro("vocabulary",
                   [](const api::Session& self) { return self.plan().model.config.vocabulary; })
      .def_prop_ro(
          "parameters",
          [](const api::Session& self) { return self.plan().model.trainable_parameters(); })
      .def_prop_ro("chunk",
                   [](const api::Session& self) { return self.plan().numerics.chunk_tokens; })
      .def_prop_ro("device_used",
                   [](const api::Session& self) { return self.device().used_bytes(); })
      .def("weights", [](nb::handle self) { return views(self, false); })
      .def("gradients", [](nb::handle self) { return views(self, true); });
  m.def("train", &train, nb::arg("file"), nb::arg("settings"), nb::arg("resume"),
        nb::arg("receiver"));
  m.def("send_messages_to", &send_messages_to, nb::arg("receiver"));
  // Before the interpreter's end: messages of threads must not meet one that is gone.
  m.def("stop_messages", [] { set_log_sink(nullptr); });
  m.attr("__version__") = LONGSTRIDE_VERSION;
}
