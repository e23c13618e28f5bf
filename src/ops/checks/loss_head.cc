#include "ops/loss_head.h"

#include "base/error.h"

namespace longstride::ops {

void check(const Stream& stream, const LossHead& args) {
  const Shape &x = args.x_TD.shape(), &w = args.w_VD.shape();
  LS_CHECK(x.rank() == 2 && w.rank() == 2 && w[1] == x[1] && is_weight_type(args.w_VD.dtype()) &&
               args.targets_T.shape() == Shape({x[0]}) && args.losses_T.shape() == Shape({x[0]}),
           "x {} w {} targets {} losses {}", x.to_string(), w.to_string(),
           args.targets_T.shape().to_string(), args.losses_T.shape().to_string());
  LS_CHECK(!args.correct_T.present() || args.correct_T.shape() == Shape({x[0]}), "correct {}",
           args.correct_T.shape().to_string());
  LS_CHECK(
      !args.dx_TD.present() || (args.dx_TD.shape() == x && args.dx_TD.dtype() == args.x_TD.dtype()),
      "x {} dx {}", x.to_string(), args.dx_TD.shape().to_string());
  LS_CHECK(!args.dw_VD.present() || args.dw_VD.shape() == w, "w {} dw {}", w.to_string(),
           args.dw_VD.shape().to_string());
  for (const ConstView* v : {&args.weights_T, &args.earlier_T})
    LS_CHECK(!v->present() || (v->shape() == Shape({x[0]}) && v->dtype() == DType::kF32),
             "x {} weights {}", x.to_string(), v->shape().to_string());
  LS_CHECK(!args.earlier_T.present() || args.weights_T.present(), "ratios without weights");
  LS_CHECK(args.block_rows >= 1 && args.scratch.elements() >=
                                       loss_head_scratch_elements(
                                           stream, {args.block_rows, args.w_VD, args.x_TD.dtype()}),
           "scratch {} for {} rows of {}", args.scratch.shape().to_string(), args.block_rows,
           w.to_string());
}

}  // namespace longstride::ops
