// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_CONTEXT_HPP
#define GRADSCALER_CPP_CONTEXT_HPP
//
// The library and its devices: gradscaler::Context over gsc_context, with options that have named initializers.
// Contracts are those of gradscaler.h. Include <gradscaler/gradscaler.hpp>.
//
#include <cstdint>
#include <gradscaler/cpp/base.hpp>

namespace gradscaler {

inline const char *library_get_version() noexcept { return gsc_library_get_version(); }
inline uint32_t library_get_abi_version() noexcept { return gsc_library_get_abi_version(); }
inline const char *library_get_build_info() noexcept { return gsc_library_get_build_info(); }
inline const char *status_get_name(gsc_status status) noexcept { return gsc_status_get_name(status); }
inline const char *error_get_message() noexcept { return gsc_error_get_message(); }
inline void error_clear() noexcept { gsc_error_clear(); }

inline int32_t device_get_count(DeviceType type) {
  int32_t count = 0;
  detail::check(gsc_device_get_count(static_cast<int32_t>(type), &count));
  return count;
}

inline gsc_device_info device_get_info(DeviceType type, int32_t index = 0) {
  gsc_device_info info{};
  info.struct_size = sizeof info;
  detail::check(gsc_device_get_info(static_cast<int32_t>(type), index, &info));
  return info;
}

/// Fields and defaults of gsc_context_options.
struct ContextOptions {
  uint32_t flags = 0;
  DeviceType device_type = DeviceType::cpu;
  int32_t device_index = 0;
  int32_t num_threads = 0;
  CpuTarget cpu_target = CpuTarget::best;
  gsc_parallel_for_fn parallel_for = nullptr;
  void *parallel_for_user = nullptr;
  gsc_allocate_fn allocate = nullptr;
  gsc_release_fn release = nullptr;
  void *allocator_user = nullptr;
  gsc_log_fn log = nullptr;
  void *log_user = nullptr;
  void *device_pool = nullptr;

  gsc_context_options to_c() const {
    gsc_context_options c{};
    detail::check(gsc_context_options_init(&c, sizeof c));
    c.flags = flags;
    c.device_type = static_cast<int32_t>(device_type);
    c.device_index = device_index;
    c.num_threads = num_threads;
    c.cpu_target = static_cast<int32_t>(cpu_target);
    c.parallel_for = parallel_for;
    c.parallel_for_user = parallel_for_user;
    c.allocate = allocate;
    c.release = release;
    c.allocator_user = allocator_user;
    c.log = log;
    c.log_user = log_user;
    c.device_pool = device_pool;
    return c;
  }
};

/// A device. Safe to share between threads.
class Context : public detail::Handle<gsc_context> {
 public:
  Context(const ContextOptions &options = {}) {
    const gsc_context_options c = options.to_c();
    gsc_context *made = nullptr;
    detail::check(gsc_context_create(&c, &made));
    take(made);
  }
  /// Takes ownership of an object created through the C ABI.
  static Context adopt(gsc_context *object) noexcept { return Context(object, detail::Adopt{}); }

  struct Device {
    DeviceType type;
    int32_t index;
  };
  Device get_device() const {
    int32_t type = 0, index = 0;
    detail::check(gsc_context_get_device(get(), &type, &index));
    return {static_cast<DeviceType>(type), index};
  }
  struct Cpu {
    CpuTarget target;
    int32_t num_threads;
  };
  Cpu get_cpu() const {
    int32_t target = 0, num_threads = 0;
    detail::check(gsc_context_get_cpu(get(), &target, &num_threads));
    return {static_cast<CpuTarget>(target), num_threads};
  }
  /// Bytes that the context and its objects hold.
  struct Memory {
    int64_t host, device;
  };
  Memory get_memory() const {
    Memory memory{};
    detail::check(gsc_context_get_memory(get(), &memory.host, &memory.device));
    return memory;
  }
  void set_log(gsc_log_fn log, void *user = nullptr) { detail::check(gsc_context_set_log(get(), log, user)); }

 private:
  Context(gsc_context *object, detail::Adopt) noexcept : Handle(object) {}
};

}  // namespace gradscaler

#endif  // GRADSCALER_CPP_CONTEXT_HPP
