// Whether a corpus is the one it was: its length, and tokens, mask and ends of documents at its
// begin, its end and evenly between. A corpus of any size is looked at in some milliseconds, so a
// change of single tokens elsewhere goes unnoticed; another file, or one that has grown, does not.
#pragma once

#include <string>

#include "data/corpus.h"

namespace longstride {

// 16 hexadecimal digits.
std::string corpus_digest(const Corpus& corpus);

}  // namespace longstride
