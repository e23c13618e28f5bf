// Digest of a corpus, to detect that it changed: its length, and tokens, mask, weights and ends of
// documents at its start, its end and evenly between. It takes milliseconds for any size. A change
// of single tokens elsewhere goes unnoticed; another file, or one that has grown, does not.
#pragma once

#include <string>

#include "data/corpus.h"

namespace longstride {

// 16 hexadecimal digits.
std::string corpus_digest(const Corpus& corpus);

}  // namespace longstride
