#include "disk_space.hpp"

#if defined(__linux__)
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/vfs.h>
#endif

namespace penstok::kernel {

#if defined(__linux__)
bool reserve_disk_space(int file, int64_t start, int64_t num_bytes) {
  constexpr auto kExt4 = 0xEF53;
  struct statfs found;
  // Not posix_fallocate, which writes to every block where the file system cannot do it.
  return fstatfs(file, &found) == 0 && found.f_type == kExt4 &&
         fallocate(file, FALLOC_FL_KEEP_SIZE, start, num_bytes) == 0;
}
#else
bool reserve_disk_space(int, int64_t, int64_t) {
  return false;
}
#endif

}  // namespace penstok::kernel
