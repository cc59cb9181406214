// SPDX-License-Identifier: Apache-2.0
// operator new and delete for macOS with a linked-in C++ runtime. The runtime's are weak and always exported, and the
// dynamic linker would give them to the whole process. Compiled with -fvisibility-global-new-delete=force-hidden. They
// call no new-handler: those belong to the process.
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

void *allocate(std::size_t bytes, std::size_t alignment) noexcept {
  void *memory = nullptr;
  if (alignment < sizeof(void *)) alignment = sizeof(void *);
  return ::posix_memalign(&memory, alignment, bytes != 0 ? bytes : 1) == 0 ? memory : nullptr;
}

void *allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void *memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

constexpr std::size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads): all of them are here
void *operator new(std::size_t n) { return allocate_or_throw(n, kUsual); }
void *operator new[](std::size_t n) { return allocate_or_throw(n, kUsual); }
void *operator new(std::size_t n, const std::nothrow_t &) noexcept { return allocate(n, kUsual); }
void *operator new[](std::size_t n, const std::nothrow_t &) noexcept { return allocate(n, kUsual); }
void *operator new(std::size_t n, std::align_val_t a) { return allocate_or_throw(n, static_cast<std::size_t>(a)); }
void *operator new[](std::size_t n, std::align_val_t a) { return allocate_or_throw(n, static_cast<std::size_t>(a)); }
void operator delete(void *p) noexcept { std::free(p); }
void operator delete[](void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
void operator delete[](void *p, std::size_t) noexcept { std::free(p); }
void operator delete(void *p, const std::nothrow_t &) noexcept { std::free(p); }
void operator delete[](void *p, const std::nothrow_t &) noexcept { std::free(p); }
void operator delete(void *p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void *p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void *p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void *p, std::size_t, std::align_val_t) noexcept { std::free(p); }
// NOLINTEND(misc-new-delete-overloads)
