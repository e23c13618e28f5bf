// Operations that may overwrite their input give the same bits when they do: a chunk that retains
// its activations computes into other memory, one that does not computes in place.
#include "ops/swiglu.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride::ops {
namespace {

using InPlace = OnGpu;

TEST_F(InPlace, Swiglu) {
  for (const DType t : {DType::kBF16, DType::kF32}) {
    const View gate = random(t, {300, 264}), up = random(t, {300, 264}), y = make(t, {300, 264});
    swiglu_forward(stream(), {gate, up, y});
    swiglu_forward(stream(), {gate, up, gate});
    EXPECT_TRUE(bytes(y) == bytes(gate)) << name_of(t);
  }
}

}  // namespace
}  // namespace longstride::ops
