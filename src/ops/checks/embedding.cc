#include "ops/embedding.h"

#include "base/error.h"

namespace longstride::ops {

void check(const Stream&, const EmbeddingForward& args) {
  const Shape &tokens = args.tokens_T.shape(), &table = args.table_VD.shape();
  LS_CHECK(
      table.rank() == 2 && tokens.rank() == 1 && args.y_TD.shape() == Shape({tokens[0], table[1]}),
      "tokens {} table {} rows {}", tokens.to_string(), table.to_string(),
      args.y_TD.shape().to_string());
  LS_CHECK(is_weight_type(args.table_VD.dtype()), "table {}", name_of(args.table_VD.dtype()));
}

void check(const Stream&, const EmbeddingBackward& args) {
  const Shape &groups = args.groups_G4.shape(), &rows = args.rows_T.shape(),
              &dy = args.dy_TD.shape(), &table = args.dtable_VD.shape();
  if (!args.dtable_VD.present()) return;
  LS_CHECK(table.rank() == 2 && groups == Shape({groups[0], 4}) && rows == Shape({dy[0]}) &&
               dy == Shape({dy[0], table[1]}),
           "groups {} rows {} of {} table {}", groups.to_string(), rows.to_string(), dy.to_string(),
           table.to_string());
}

}  // namespace longstride::ops
