// Compares files with the checksums that are known of them.
#pragma once

#include <atomic>

#include "data/corpus.h"

namespace longstride {

// Reads the whole file. Throws Error, naming it, if its bytes have another checksum. Returns early
// when *stop becomes true.
void check_file(const CheckedFile& file, const std::atomic<bool>* stop = nullptr);
// All files of a corpus, one after the other.
void check_files(const Corpus& corpus);

}  // namespace longstride
