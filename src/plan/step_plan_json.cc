#include "plan/step_plan_json.h"

#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::array<std::string_view, kRetainedKinds> kRetainedNames = {
    "input", "q", "attention", "mid", "gate", "up"};
constexpr std::array<std::string_view, 9> kTaskNames = {
    "embed", "layer forward",    "head",         "layer backward", "release", "embed backward",
    "send",  "receive gradient", "send gradient"};

template <std::size_t N>
std::size_t index_of(const std::array<std::string_view, N>& names, const Json& json) {
  const auto name = json.get<std::string>();
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return i;
  throw Error(fmt::format("'{}' is unknown", name), "");
}

OrderedJson names_of(Retention tensors) {
  OrderedJson names = OrderedJson::array();
  for (std::size_t i = 0; i < kRetainedNames.size(); ++i)
    if (tensors.has(static_cast<Retained>(i))) names.push_back(kRetainedNames[i]);
  return names;
}

Retention retention_from(const Json& json) {
  Retention tensors;
  for (const Json& name : json)
    tensors = tensors | Retention{static_cast<Retained>(index_of(kRetainedNames, name))};
  return tensors;
}

// One list of fields serves both directions: calls f(name, member) for each.
template <class Cut, class F>
void cut_fields(Cut& c, const F& f) {
  f("tokens", c.tokens);
  f("from_first_page", c.from_first_page);
  f("own_apart", c.own_apart);
  f("documents_apart", c.documents_apart);
  f("even_tokens", c.even_tokens);
}

template <class Memory, class F>
void memory_fields(Memory& m, const F& f) {
  f("kv_pages", m.kv_pages);
  f("kv_gradient_pages", m.kv_gradient_pages);
  f("workspace", m.workspace);
  f("retained", m.retained);
  f("summaries", m.summaries);
  f("rope", m.rope);
  f("host_pages", m.host_pages);
  f("disk_pages", m.disk_pages);
  f("host_activations", m.host_activations);
  f("disk_activations", m.disk_activations);
  f("workspace_bound", m.workspace_bound);
}

template <class Request, class F>
void request_fields(Request& r, const F& f) {
  f("name", r.name);
  f("bytes", r.bytes);
  f("begin", r.begin);
  f("end", r.end);
}

template <class Task, class F>
void task_fields(Task& t, const F& f) {
  f("chunk", t.chunk);
  f("layer", t.layer);
  f("output", t.output);
  f("output_lasts", t.output_lasts);
  f("append", t.append);
  f("sparse", t.sparse);
  f("selects", t.selects);
  f("keys_too", t.keys_too);
  f("fetches_layer", t.fetches_layer);
}

template <class Capacity, class F>
void offload_fields(Capacity& c, const F& f) {
  f("host_records", c.host_records);
  f("disk_records", c.disk_records);
  f("disk_buffers", c.disk_buffers);
}

template <class Capacity, class F>
void pool_fields(Capacity& c, const F& f) {
  f("layers", c.layers);
  f("page_bytes", c.page_bytes);
  f("most", c.most);
  f("pages", c.pages);
}

template <class Capacity, class F>
void wide_fields(Capacity& c, const F& f) {
  f("kv_pages", c.kv_pages);
  f("gradient_pages", c.gradient_pages);
  f("hot_pages", c.hot_pages);
}

auto writing(OrderedJson& json) {
  return [&](const char* name, const auto& value) { json[name] = value; };
}
auto reading(const Json& json) {
  return [&](const char* name, auto& value) { json.at(name).get_to(value); };
}

OrderedJson offload_to_json(const OffloadCapacity& capacity) {
  OrderedJson json;
  offload_fields(capacity, writing(json));
  json["disk_directory"] = capacity.disk_directory.string();
  return json;
}

OffloadCapacity offload_from(const Json& json) {
  OffloadCapacity capacity;
  offload_fields(capacity, reading(json));
  capacity.disk_directory = json.at("disk_directory").get<std::string>();
  return capacity;
}

OrderedJson pools_to_json(const std::vector<PoolCapacity>& pools) {
  OrderedJson all = OrderedJson::array();
  for (const PoolCapacity& pool : pools) {
    OrderedJson& json = all.emplace_back();
    pool_fields(pool, writing(json));
    json["offload"] = offload_to_json(pool.offload);
  }
  return all;
}

std::vector<PoolCapacity> pools_from(const Json& json) {
  std::vector<PoolCapacity> pools;
  for (const Json& pool : json) {
    pool_fields(pools.emplace_back(), reading(pool));
    pools.back().offload = offload_from(pool.at("offload"));
  }
  return pools;
}

OrderedJson schedule_to_json(const ScheduleOptions& s) {
  OrderedJson across = OrderedJson::array(), offloaded = OrderedJson::array(), forward, backward;
  for (const Retention tensors : s.across_episodes) across.push_back(names_of(tensors));
  for (const Retention tensors : s.offloaded) offloaded.push_back(names_of(tensors));
  cut_fields(s.forward_cut, writing(forward));
  cut_fields(s.backward_cut, writing(backward));
  OrderedJson json{{"windows", s.windows},
                   {"sparse", to_json(s.sparse)},
                   {"keep_chunks", s.keep_chunks},
                   {"within_episode", names_of(s.within_episode)},
                   {"across_episodes", across},
                   {"offloaded", offloaded},
                   {"forward_cut", forward},
                   {"backward_cut", backward},
                   {"packed", s.packed},
                   {"wavefront", s.wavefront},
                   {"first_trained_layer", s.first_trained_layer},
                   {"forward_only", s.forward_only},
                   {"first_layer", s.stage.first_layer},
                   {"receives", s.stage.receives},
                   {"sends", s.stage.sends},
                   {"trains_below", s.stage.trains_below}};
  if (s.stage.heads.several()) json["heads"] = s.stage.heads.ranks;
  return json;
}

ScheduleOptions schedule_from(const Json& json) {
  ScheduleOptions s;
  json.at("windows").get_to(s.windows);
  s.sparse = sparse_layers_from(json.at("sparse"));
  json.at("keep_chunks").get_to(s.keep_chunks);
  s.within_episode = retention_from(json.at("within_episode"));
  for (const Json& tensors : json.at("across_episodes"))
    s.across_episodes.push_back(retention_from(tensors));
  for (const Json& tensors : json.at("offloaded")) s.offloaded.push_back(retention_from(tensors));
  cut_fields(s.forward_cut, reading(json.at("forward_cut")));
  cut_fields(s.backward_cut, reading(json.at("backward_cut")));
  json.at("packed").get_to(s.packed);
  json.at("wavefront").get_to(s.wavefront);
  json.at("first_trained_layer").get_to(s.first_trained_layer);
  json.at("forward_only").get_to(s.forward_only);
  json.at("first_layer").get_to(s.stage.first_layer);
  json.at("receives").get_to(s.stage.receives);
  json.at("sends").get_to(s.stage.sends);
  json.at("trains_below").get_to(s.stage.trains_below);
  s.stage.heads.ranks = json.value("heads", std::int64_t{1});
  return s;
}

OrderedJson episode_to_json(const EpisodeShape& shape, const PlacedEpisode& placed) {
  OrderedJson tasks = OrderedJson::array(), requests = OrderedJson::array();
  for (const TaskShape& t : shape) {
    OrderedJson task = {{"kind", kTaskNames[static_cast<std::size_t>(t.kind)]}};
    task_fields(t, writing(task));
    task["held"] = names_of(t.held);
    task["retains"] = names_of(t.retains);
    task["lasting"] = names_of(t.lasting);
    task["saved"] = names_of(t.saved);
    task["fetches"] = names_of(t.fetches);
    tasks.push_back(std::move(task));
  }
  for (std::size_t i = 0; i < placed.trace.size(); ++i) {
    OrderedJson request;
    request_fields(placed.trace[i], writing(request));
    request["offset"] = placed.placement.offsets[i];
    requests.push_back(std::move(request));
  }
  return {{"workspace", placed.placement.bytes}, {"tasks", tasks}, {"tensors", requests}};
}

std::pair<EpisodeShape, PlacedEpisode> episode_from(const Json& json) {
  std::pair<EpisodeShape, PlacedEpisode> episode;
  auto& [shape, placed] = episode;
  for (const Json& task : json.at("tasks")) {
    TaskShape& t = shape.emplace_back();
    t.kind = static_cast<TaskKind>(index_of(kTaskNames, task.at("kind")));
    task_fields(t, reading(task));
    t.held = retention_from(task.at("held"));
    t.retains = retention_from(task.at("retains"));
    t.lasting = retention_from(task.at("lasting"));
    t.saved = retention_from(task.at("saved"));
    t.fetches = retention_from(task.at("fetches"));
  }
  json.at("workspace").get_to(placed.placement.bytes);
  for (const Json& request : json.at("tensors")) {
    request_fields(placed.trace.emplace_back(), reading(request));
    placed.placement.offsets.push_back(request.at("offset").get<std::int64_t>());
  }
  if (const std::string wrong = check_placement(placed.trace, placed.placement); !wrong.empty())
    throw Error(wrong, "");
  return episode;
}

}  // namespace

OrderedJson to_json(const StepPlan& plan) {
  OrderedJson episodes = OrderedJson::array(), activations = OrderedJson::array(), pages, memory;
  for (const auto& [shape, placed] : plan.episodes)
    episodes.push_back(episode_to_json(shape, placed));
  pages["logical_pages"] = plan.pages.logical_pages;
  pages["pages_per_group"] = plan.pages.pages_per_group;
  pages["kv"] = pools_to_json(plan.pages.kv);
  pages["gradients"] = pools_to_json(plan.pages.gradients);
  for (const OffloadCapacity& kind : plan.activations) activations.push_back(offload_to_json(kind));
  memory_fields(plan.memory, writing(memory));
  if (plan.wide_pages.any()) {
    wide_fields(plan.wide_pages, writing(pages["wide"]));
    pages["wide"]["bytes"] = plan.memory.wide_pages;
  }
  return {{"max_tokens", plan.max_tokens},
          {"chunk_tokens", plan.chunk_tokens},
          {"page_tokens", plan.page_tokens},
          {"schedule", schedule_to_json(plan.schedule)},
          {"pages", pages},
          {"activations", activations},
          {"memory", memory},
          {"trained_layers", plan.trained.layers},
          {"trained_head", plan.trained.head},
          {"weighted", plan.weighted},
          {"episodes", episodes}};
}

StepPlan step_plan_from_json(const Json& json, const std::string& where) {
  const auto damaged = [&](const char* why) {
    return Error(fmt::format("{}: the plan is damaged: {}", where, why), "write it anew");
  };
  try {
    StepPlan plan;
    json.at("max_tokens").get_to(plan.max_tokens);
    json.at("chunk_tokens").get_to(plan.chunk_tokens);
    json.at("page_tokens").get_to(plan.page_tokens);
    plan.schedule = schedule_from(json.at("schedule"));
    const Json& pages = json.at("pages");
    pages.at("logical_pages").get_to(plan.pages.logical_pages);
    pages.at("pages_per_group").get_to(plan.pages.pages_per_group);
    plan.pages.kv = pools_from(pages.at("kv"));
    plan.pages.gradients = pools_from(pages.at("gradients"));
    for (std::size_t k = 0; k < plan.activations.size(); ++k)
      plan.activations[k] = offload_from(json.at("activations").at(k));
    memory_fields(plan.memory, reading(json.at("memory")));
    if (pages.contains("wide")) {
      const Json& wide = pages.at("wide");
      wide_fields(plan.wide_pages, reading(wide));
      wide.at("bytes").get_to(plan.memory.wide_pages);
    }
    json.at("trained_layers").get_to(plan.trained.layers);
    json.at("trained_head").get_to(plan.trained.head);
    plan.weighted = json.value("weighted", false);
    plan.trained.first_layer = plan.schedule.first_trained_layer;
    for (const Json& episode : json.at("episodes")) plan.episodes.insert(episode_from(episode));
    return plan;
  } catch (const Json::exception& e) {
    throw damaged(e.what());
  } catch (const Error& e) {
    throw damaged(e.what());
  }
}

}  // namespace longstride
