#include "cli/failure.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/log.h"

namespace longstride::cli {

Failure describe_failure(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    return {"error: ", e.what(), e.hint(), 2};
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
  log_line(failure.level, failure.message);
  if (!failure.hint.empty()) log_line("  hint: ", failure.hint);
}

int run_on_ranks(comm::MessageLink& link, const std::function<int()>& body) {
  try {
    const int status = body();
    link.close();
    return status;
  } catch (const comm::RankFailed& e) {
    return e.status();  // that rank has told its user
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

}  // namespace longstride::cli
