// What the program says when something was thrown, and the exit status that belongs to it.
#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <string>

#include "comm/message_link.h"

namespace longstride::cli {

struct Failure {
  std::string level, message, hint;  // "error: "; empty: nothing is said
  int status = 1;
};
Failure describe_failure(const std::exception_ptr& thrown);
void print_failure(const Failure& failure);

// Runs `body` on every rank of a group and returns the exit status. What a rank throws is told once
// for all ranks, naming the rank and its host, and ends all of them with the same status. Closes
// the link.
int run_on_ranks(comm::MessageLink& link, const std::function<int()>& body);

// Throws if a launcher has started several processes of a command that runs in one: Error on rank
// 0, RankFailed on the others, which are quiet.
void refuse_several_ranks(const CLI::App& app);

}  // namespace longstride::cli
