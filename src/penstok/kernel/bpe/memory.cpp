#include "bpe/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace penstok::kernel {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = kHugePage / 2;
constexpr size_t kWorkspaceKept = size_t{1} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

#if defined(__linux__) && defined(MADV_HUGEPAGE)
// Pages come zeroed when they are first touched, so that a short text pays for few of them.
void* map_aligned(size_t bytes) {
  void* mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<uint8_t*>(mapped);
  const size_t before = round_up(reinterpret_cast<uintptr_t>(first), kHugePage) -
                        reinterpret_cast<uintptr_t>(first);
  if (before > 0) munmap(first, before);
  if (before < kHugePage) munmap(first + before + bytes, kHugePage - before);
  // Advice only: a system without huge pages returns an error and uses ordinary pages.
  madvise(first + before, bytes, MADV_HUGEPAGE);
  return first + before;
}
#endif

}  // namespace

Buffer::Buffer(size_t bytes) {
  const size_t alignment = bytes >= kLarge ? kHugePage : kCacheLine;
  bytes_ = round_up(bytes, alignment);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) {
    data_ = map_aligned(bytes_);
    return;
  }
#endif
  data_ = std::aligned_alloc(alignment, bytes_);
  if (data_ == nullptr) throw std::bad_alloc();
  std::memset(data_, 0, bytes_);
}

Buffer::~Buffer() {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes_ >= kLarge) {
    munmap(data_, bytes_);
    return;
  }
#endif
  std::free(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

uint8_t* Workspace::reserve(size_t bytes) {
  if (buffer_.size() < bytes) {
    buffer_ = Buffer();  // release the old one first: never both at once
    buffer_ = Buffer(std::max(bytes, kWorkspaceKept / 4));
  }
  return buffer_.as<uint8_t>();
}

void Workspace::trim() {
  if (buffer_.size() > kWorkspaceKept) buffer_ = Buffer();
}

}  // namespace penstok::kernel
