#include "cli/link_rate.h"

#include "base/error.h"
#include "base/sizes.h"
#include "train/pipeline_outlook.h"

namespace longstride::cli {

CLI::Option* add_link_rate(CLI::App& command, std::string& rate) {
  return command.add_option("--link-rate", rate,
                            "bytes a second between two ranks; without it 5 GB");
}

PipelineLink link_of(const std::string& rate) {
  PipelineLink link = kHostLink;
  if (rate.empty()) return link;
  link.bytes_per_s = static_cast<double>(parse_size(rate, "--link-rate"));
  if (link.bytes_per_s < 1)
    throw Error("--link-rate 0: no bytes would ever arrive", "give --link-rate 25G, for instance");
  return link;
}

}  // namespace longstride::cli
