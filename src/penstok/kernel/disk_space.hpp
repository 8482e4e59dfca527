// Blocks of the disk for what is about to be written.
#pragma once

#include "bytes.hpp"

namespace penstok::kernel {

// Lets the file system choose the blocks of a range at once instead of page by page. Only on ext4,
// where it was measured; tmpfs would clear the memory first. The file does not become longer, and a
// full disk is reported by the write, not by this. Returns whether it was done.
bool reserve_disk_space(int file, int64_t start, int64_t num_bytes);

}  // namespace penstok::kernel
