// Runs the program as users do, as a separate process, and captures its output and exit status.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/where.h"

namespace longstride {

struct RunOptions {
  std::filesystem::path directory = {};                               // where it runs; empty: here
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to our own
  std::optional<rlim_t> file_bytes = {};     // the largest file it may write
  std::optional<rlim_t> address_bytes = {};  // of address space, as by ulimit -v
  std::filesystem::path out = {};            // where stdout goes; empty: into the result
  bool out_unread = false;                   // stdout is a pipe whose reader has gone
  double timeout_s = 60;
};

struct ProgramResult {
  int status = -1;  // exit status; 128 + signal if a signal ended it, as in a shell
  bool timed_out = false;
  std::string out, err;
  std::string text() const { return fmt::format("status {}\n{}{}", status, out, err); }
};

// A started longstride. Killed on destruction if it still runs.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, RunOptions options = {})
      : options_(std::move(options)), out_(std::tmpfile()), err_(std::tmpfile()) {
    std::vector<std::string> words = {program_path()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    started_ = std::chrono::steady_clock::now();
    pid_ = ::fork();
    if (pid_ == 0) become(argv.data());
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (running()) {
      send(SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::fclose(out_);
    std::fclose(err_);
  }

  bool running() {
    if (pid_ <= 0 || ended_) return false;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
    result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended_ = true;
    return false;
  }

  // Not for a process that has ended: its id may have been reused.
  void send(int signal) {
    if (!ended_) ::kill(pid_, signal);
  }

  ProgramResult wait() {
    while (running()) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started_;
      if (!result_.timed_out && spent.count() > options_.timeout_s) {
        result_.timed_out = true;
        send(SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    result_.out = text_of(out_);
    result_.err = text_of(err_);
    return result_;
  }

 private:
  [[noreturn]] void become(char** argv) const {
    if (!options_.directory.empty() && ::chdir(options_.directory.c_str()) != 0) ::_exit(126);
    ::dup2(::fileno(out_), STDOUT_FILENO);
    ::dup2(::fileno(err_), STDERR_FILENO);
    for (const auto& [name, value] : options_.environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (options_.file_bytes) limit(RLIMIT_FSIZE, *options_.file_bytes);
    if (options_.address_bytes) limit(RLIMIT_AS, *options_.address_bytes);
    if (options_.out_unread) {
      int ends[2] = {};
      if (::pipe(ends) != 0 || ::dup2(ends[1], STDOUT_FILENO) < 0) ::_exit(126);
      ::close(ends[0]);
    }
    if (!options_.out.empty()) {
      const int out = ::open(options_.out.c_str(), O_WRONLY);
      if (out < 0 || ::dup2(out, STDOUT_FILENO) < 0) ::_exit(126);
    }
    ::execv(argv[0], argv);
    ::_exit(127);
  }

  static void limit(int what, rlim_t most) {
    const rlimit limit{most, most};
    if (::setrlimit(static_cast<__rlimit_resource_t>(what), &limit) != 0) ::_exit(126);
  }

  static std::string text_of(std::FILE* file) {
    std::string text;
    std::rewind(file);
    char block[4096];
    for (std::size_t n = 0; (n = std::fread(block, 1, sizeof(block), file)) > 0;)
      text.append(block, n);
    return text;
  }

  RunOptions options_;
  std::FILE* out_;
  std::FILE* err_;
  std::chrono::steady_clock::time_point started_;
  pid_t pid_ = -1;
  bool ended_ = false;
  ProgramResult result_;
};

inline ProgramResult run_program(const std::vector<std::string>& arguments,
                                 RunOptions options = {}) {
  return Program(arguments, std::move(options)).wait();
}

// It ended with this status, and stderr contains all the parts.
inline ::testing::AssertionResult ended(const ProgramResult& result, int status,
                                        const std::vector<std::string>& parts = {}) {
  if (result.timed_out) return ::testing::AssertionFailure() << "timed out: " << result.text();
  if (result.status != status)
    return ::testing::AssertionFailure() << "not status " << status << ": " << result.text();
  for (const std::string& part : parts)
    if (result.err.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "no '" << part << "' in: " << result.text();
  return ::testing::AssertionSuccess();
}

// A user's mistake: status 2, a message with all the parts and a hint, and nothing on stdout.
inline ::testing::AssertionResult refused(const ProgramResult& result,
                                          const std::vector<std::string>& parts) {
  std::vector<std::string> all = parts;
  all.insert(all.end(), {"error: ", "  hint: "});
  if (!result.out.empty())
    return ::testing::AssertionFailure() << "something on stdout: " << result.text();
  return ended(result, 2, all);
}

}  // namespace longstride
