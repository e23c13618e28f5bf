#include "model/layer_attention.h"

namespace longstride {

Lease to_heads(const LayerPass& pass, const char* name, ConstView x_SHC) {
  const SharedChunk& shared = pass.ctx.shared;
  if (!shared.share.several()) return {};
  Lease y_TGC =
      pass.ctx.take(name, {shared.tokens, x_SHC.dim(1) / shared.share.ranks, x_SHC.dim(2)});
  if (shared.exchange != nullptr) shared.exchange->to_heads(x_SHC, y_TGC);
  return y_TGC;
}

void to_tokens(const LayerPass& pass, ConstView y_TGC, View x_SHC) {
  HeadExchange* exchange = pass.ctx.shared.exchange;
  if (exchange != nullptr) exchange->to_tokens(y_TGC, x_SHC);
}

}  // namespace longstride
