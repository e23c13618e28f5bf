#include "train/shared_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "comm/control.h"
#include "comm/sub_link.h"
#include "plan/step_plan_json.h"

namespace longstride {

void share_step_plan(RunPlan& plan, comm::MessageLink& link) {
  const RankPlace& place = plan.place;
  if (place.heads == 1) return;
  std::vector<int> ranks;
  for (std::int64_t h = 0; h < place.heads; ++h)
    ranks.push_back(
        static_cast<int>(place.rank_of(place.pipeline() * place.heads + h, place.stage)));
  comm::SubLink heads(link, ranks);
  RunNeeds& needs = plan.needs;
  const std::int64_t room = needs.available - needs.weights - needs.gradients - needs.optimizer;
  const std::vector<std::int64_t> rooms = comm::gather(heads, room);
  const auto least = static_cast<int>(std::ranges::min_element(rooms) - rooms.begin());
  // Where it has none, the run does not fit, and it says so.
  const std::string text =
      comm::share_text(heads, least, plan.step ? dump_json(to_json(*plan.step)) : std::string());
  if (text.empty() || heads.rank() == least) return;
  plan.step = step_plan_from_json(Json::parse(text), "the plan of another rank");
  needs.step = plan.step->memory;
}

}  // namespace longstride
