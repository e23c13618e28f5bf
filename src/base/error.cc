#include "base/error.h"

namespace longstride {

void fail_check(const char* file, int line, const char* condition, const std::string& details) {
  throw InternalError(fmt::format("{}:{}: check failed: {}{}{}", file, line, condition,
                                  details.empty() ? "" : ": ", details));
}

}  // namespace longstride
