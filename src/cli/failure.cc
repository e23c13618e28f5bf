#include "cli/failure.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "comm/launch.h"

namespace longstride::cli {

Failure describe_failure(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    return {"error: ", e.what(), e.hint(), 2};
  } catch (const comm::RankFailed& e) {
    return {"", "", "", e.status()};  // that rank has told its user
  } catch (const std::filesystem::filesystem_error& e) {
    return {"error: ", fmt::format("{}: {}", e.path1().string(), e.code().message()),
            "check that the path exists and that you have access to it", 2};
  } catch (const std::bad_alloc&) {
    return {
        "error: ", "not enough memory on this machine",
        "use a shorter context, or larger chunks: what plans them grows with the "
        "square of their number; or raise the address-space limit (ulimit -v), where there is one",
        2};
  } catch (const std::exception& e) {
    return {"internal error: ", e.what(), "", 1};
  }
}

void print_failure(const Failure& failure) {
  if (failure.level.empty()) return;
  log_line(failure.level, failure.message);
  if (!failure.hint.empty()) log_line("  hint: ", failure.hint);
}

int run_on_ranks(comm::MessageLink& link, const std::function<int()>& body) {
  try {
    const int status = body();
    link.close();
    return status;
  } catch (const comm::RankFailed& e) {
    return e.status();
  } catch (...) {
    Failure failure = describe_failure(std::current_exception());
    if (link.fail(failure.message, failure.status)) {
      failure.message =
          fmt::format("rank {} on {}: {}", link.rank(), link.host(link.rank()), failure.message);
      print_failure(failure);
    }
    return failure.status;
  }
}

void refuse_several_ranks(const CLI::App& app) {
  const comm::Launch launch = comm::read_launch();
  if (!launch.several()) return;
  std::string command;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += (command.empty() ? "" : " ") + at->get_name();
  }
  if (command == "bench link" || command == "train") return;
  const std::string message =
      fmt::format("{} has started {} processes of longstride {}, which runs in one",
                  launch.started_by, launch.size, command);
  if (launch.rank != 0) throw comm::RankFailed(0, 2, message);
  throw Error(message, "start a single process, without " + launch.started_by);
}

}  // namespace longstride::cli
