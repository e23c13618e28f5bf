#include "comm/sub_link.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/link_check.h"
#include "comm/thread_link.h"

namespace longstride::comm {
namespace {

// Four ranks as two pipelines of two stages: every operation within rows, then within columns.
TEST(SubLink, RowsAndColumnsOfAGrid) {
  ThreadHub hub(4);
  for (const std::exception_ptr& why : run_thread_ranks(hub, {}, [](MessageLink& link) {
         const int row = link.rank() / 2, column = link.rank() % 2;
         SubLink pipeline(link, {2 * row, 2 * row + 1});
         SubLink same_stage(link, {column + 2, column});  // in another order than the ranks
         EXPECT_EQ(pipeline.rank(), column);
         EXPECT_EQ(same_stage.rank(), 1 - row);
         EXPECT_EQ(same_stage.size(), 2);
         for (const std::int64_t bytes : {0, 1, 5000}) {
           check_link(pipeline, bytes);
           check_link(same_stage, bytes);
           check_link(link, bytes);
         }
         int value = link.rank();
         same_stage.broadcast(0, receive_buffer(value));
         EXPECT_EQ(value, column + 2);
       }))
    EXPECT_EQ(why, nullptr);
}

TEST(SubLink, RefusesAListWithoutItselfOrWithOneTwice) {
  ThreadHub hub(1);
  MessageLink link(hub.wire(0), {});
  EXPECT_THROW(SubLink(link, {}), InternalError);
  EXPECT_THROW(SubLink(link, {0, 0}), InternalError);
  EXPECT_THROW(SubLink(link, {1}), InternalError);
}

}  // namespace
}  // namespace longstride::comm
