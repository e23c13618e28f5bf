#include "comm/link_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/comm/nccl_ranks.h"

namespace longstride::comm {
namespace {

LinkFacts with_gpu(const std::string& gpu, int version = 22809) {
  return {.gpu = gpu, .nccl_version = version};
}
LinkChoice choose(LinkWish wish, const std::vector<LinkFacts>& ranks) {
  const std::vector<std::string> hosts(ranks.size(), "node7");
  return choose_link(wish, ranks, hosts);
}

TEST(LinkChoice, IsNcclWhereEveryRankHasAGpuOfItsOwn) {
  for (const LinkWish wish : {LinkWish::kAuto, LinkWish::kNccl}) {
    EXPECT_TRUE(choose(wish, {with_gpu("a"), with_gpu("b"), with_gpu("c")}).nccl);
    EXPECT_TRUE(choose(wish, {with_gpu("a")}).nccl);
  }
}

TEST(LinkChoice, IsMpiWhereItIsWishedForOrNcclCannotBe) {
  EXPECT_FALSE(choose(LinkWish::kMpi, {with_gpu("a"), with_gpu("b")}).nccl);
  LinkFacts no_library = with_gpu("b");
  no_library.why_no_nccl = "NCCL could not be opened: no such file";
  struct Case {
    LinkFacts second;
    std::string why;
  };
  const Case cases[] = {
      {{}, "has no GPU"},
      {no_library, "cannot use NCCL: NCCL could not be opened: no such file"},
      {with_gpu("b", 22703), "has NCCL 2.27.3, rank 0 on node7 has 2.28.9"},
      {with_gpu("a"), "shares its GPU with rank 0, which NCCL 2.28.9 forbids"},
  };
  for (const Case& one : cases) {
    const LinkChoice choice = choose(LinkWish::kAuto, {with_gpu("a"), one.second});
    EXPECT_FALSE(choice.nccl);
    EXPECT_EQ(choice.rank, 1);
    EXPECT_EQ(choice.why, one.why);
  }
}

TEST(LinkChoice, RanksMayShareAGpuFromNccl230OnIfAllowed) {
  LinkFacts one = with_gpu("a", 23004);
  EXPECT_EQ(choose(LinkWish::kAuto, {one, one}).why,
            "shares its GPU with rank 0, which NCCL 2.30.4 allows with "
            "NCCL_MULTI_RANK_GPU_ENABLE=1 alone");
  one.sharing_allowed = true;
  EXPECT_TRUE(choose(LinkWish::kAuto, {one, one}).nccl);
  one.nccl_version = 22907;  // does not know the variable
  EXPECT_FALSE(choose(LinkWish::kAuto, {one, one}).nccl);
}

LinkOptions two_hosts() {
  LinkOptions options;
  options.timeout_seconds = 20;
  options.host = "node7";
  return options;
}

TEST(LinkChoice, IsTheSameOnAllRanks) {
  ThreadHub hub(3);
  const auto thrown = run_thread_ranks(hub, two_hosts(), [](MessageLink& link) {
    LinkFacts mine = with_gpu(std::string(1, static_cast<char>('a' + link.rank())));
    EXPECT_TRUE(agree_on_link(link, LinkWish::kAuto, mine).nccl);
    EXPECT_FALSE(agree_on_link(link, LinkWish::kMpi, mine).nccl);
    if (link.rank() == 2) mine.why_no_nccl = "line\nbreak";
    const LinkChoice choice = agree_on_link(link, LinkWish::kAuto, mine);
    EXPECT_FALSE(choice.nccl);
    EXPECT_EQ(choice.rank, 2);
    EXPECT_EQ(choice.why, "cannot use NCCL: line break");
  });
  for (const std::exception_ptr& why : thrown) EXPECT_EQ(what_was_thrown(why), "nothing");
}

TEST(LinkChoice, NcclThatCannotBeIsRefusedOnce) {
  ThreadHub hub(3);
  const auto thrown = run_thread_ranks(hub, two_hosts(), [](MessageLink& link) {
    agree_on_link(link, LinkWish::kNccl, with_gpu(link.rank() == 1 ? "" : "a"));
  });
  const std::string message = "NCCL is asked for, and rank 1 on node7 has no GPU";
  EXPECT_EQ(what_was_thrown(thrown[0]), "Error: " + message);
  // By their own decision, or because rank 0 has said so first.
  for (const std::size_t rank : {1, 2}) {
    const std::string what = what_was_thrown(thrown[rank]);
    EXPECT_TRUE(what == "RankFailed 0: " + message ||
                what == "RankFailed 0: rank 0 on node7: " + message)
        << what;
  }
}

// The device of this process: a CPU needs no library.
TEST(LinkChoice, ACpuIsNoGpu) {
  const std::unique_ptr<Device> cpu = make_cpu_device();
  const LinkProbe probe = probe_nccl(*cpu);
  EXPECT_EQ(probe.facts.gpu, "");
  EXPECT_EQ(probe.library, nullptr);
  EXPECT_THROW(make_link_streams(*cpu), Error);
  EXPECT_THROW(parse_link_wish("tcp"), InternalError);
  EXPECT_EQ(parse_link_wish("nccl"), LinkWish::kNccl);
}

}  // namespace
}  // namespace longstride::comm
