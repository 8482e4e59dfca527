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
constexpr size_t kWorkspaceKept = size_t{1} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Buffer::Buffer(size_t bytes) {
  const size_t alignment = bytes >= kHugePage / 2 ? kHugePage : kCacheLine;
  bytes_ = round_up(bytes, alignment);
  data_ = std::aligned_alloc(alignment, bytes_);
  if (data_ == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // Advice only: a system without huge pages returns an error and uses ordinary pages.
  if (alignment == kHugePage) madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
  std::memset(data_, 0, bytes_);
}

Buffer::~Buffer() {
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
