// SPDX-License-Identifier: Apache-2.0
// Facts about the machine below that docs/dev/reliability.md states: threads that cannot be made, how many there may
// be, signals, stack. A separate program, because it replaces pthread_create.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/time.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/repetition.h"
#include "tests/support/trainer.h"

namespace {

/// pthread_create calls that still succeed; negative: all.
std::atomic<int> threads_left{-1};

/// The number of processors that the machine reports; 0: the real one.
std::atomic<int> processors{0};

/// malloc on this thread: refused while set, and what was asked for since it was watched.
thread_local bool refuse_malloc = false, watch_malloc = false;
thread_local size_t malloc_calls = 0, malloc_bytes = 0;

}  // namespace

#if !GSC_SANITIZED
#define GSC_REPLACED extern "C" __attribute__((visibility("default")))

// The library's calls arrive here too: the program comes first in the search for symbols.
GSC_REPLACED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                                void *argument) {
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  const int left = threads_left.load();
  if (left == 0) return EAGAIN;
  if (left > 0) threads_left.store(left - 1);
  return real(thread, attributes, start, argument);
}

// A machine with more processors than a cpu_set_t has bits.
GSC_REPLACED int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set) {
  static const auto real = reinterpret_cast<decltype(&sched_getaffinity)>(dlsym(RTLD_NEXT, "sched_getaffinity"));
  if (processors == 0) return real(process, size, set);
  errno = EINVAL;
  return -1;
}
GSC_REPLACED int get_nprocs() {
  static const auto real = reinterpret_cast<decltype(&get_nprocs)>(dlsym(RTLD_NEXT, "get_nprocs"));
  return processors != 0 ? processors.load() : real();
}

extern "C" void *__libc_malloc(size_t size);
GSC_REPLACED void *malloc(size_t size) {
  if (watch_malloc) {
    ++malloc_calls;
    malloc_bytes += size;
  }
  return refuse_malloc ? nullptr : __libc_malloc(size);
}
#endif

namespace gsc_test {
namespace {

std::set<std::string> threads_of_process() {
  std::set<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/task"))
    names.insert(entry.path().filename());
  return names;
}

constexpr int64_t kCount = 1 << 20;

/// Three steps, the second of which overflows, over tensors large enough for every thread; the bytes of the parameters.
std::vector<float> train(const Context &context) {
  Trainer trainer(context,
                  {.options = optimizer_options(GSC_LAMB), .counts = {kCount, 100}, .grad_dtypes = {GSC_FP16}});
  const Scaler scaler = make_scaler(context, 4.0f);
  for (int step = 0; step < 3; ++step) {
    for (int64_t i = 0; i < kCount; i += 1000) trainer.grads()[0].set(i, i % 7 - 3.0);
    if (step == 1) trainer.grads()[0].set(kCount - 1, kInf);
    EXPECT_GSC_OK(gsc_scaler_step(scaler, trainer, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    trainer.grads()[0].set(kCount - 1, 0.0);
  }
  EXPECT_EQ(scale_of(scaler), 2.0f);
  const auto *params = trainer.params()[0].as<float>();
  return {params, params + kCount};
}

/// No thread more than `before`; one that was joined stays listed for a moment.
bool threads_are_gone(size_t before) {
  for (int i = 0; i < 5000 && threads_of_process().size() > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return threads_of_process().size() <= before;
}

TEST(Threads, ThatCannotBeMadeAreDoneWithout) {
  if (GSC_SANITIZED) GTEST_SKIP() << "sanitizers need pthread_create for themselves";
  const std::vector<float> expected = train(make_context(8));
  const size_t before = threads_of_process().size();
  for (int made = 0; made < 8; ++made) {
    {
      const Context context = make_context(8);
      threads_left = made;
      EXPECT_EQ(train(context), expected) << made << " threads could be made";
      threads_left = -1;
      EXPECT_EQ(threads_of_process().size(), before + made) << "kept, and not asked for again";
      EXPECT_EQ(train(context), expected);
    }
    EXPECT_TRUE(threads_are_gone(before)) << made;
  }
}

TEST(Threads, UpTo1024) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_context *made = nullptr;
  options.num_threads = 1025;
  EXPECT_INVALID(gsc_context_create(&options, &made), "num_threads", "1024");
  if (GSC_SANITIZED) return;
  const std::vector<float> expected = train(make_context(1));
  const size_t before = threads_of_process().size();
  {
    const Context context = make_context(1024);
    EXPECT_EQ(train(context), expected);
  }
  EXPECT_TRUE(threads_are_gone(before));
}

std::atomic<int> handled{0};
std::atomic<bool> handled_elsewhere{false};
pthread_t main_thread;

void handle(int) {
  ++handled;
  if (pthread_equal(pthread_self(), main_thread) == 0) handled_elsewhere = true;
}

/// The mask of a thread of this process, bit n - 1 for signal n.
uint64_t blocked_signals(const std::string &thread) {
  std::ifstream status("/proc/self/task/" + thread + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return 0;
}

/// The tasks of a region are as many as 1024 threads take; a job system that had more would get none of them.
TEST(Threads, AreAtMost1024HoweverManyProcessorsThereAre) {
  if (GSC_SANITIZED) GTEST_SKIP() << "sanitizers ask for the processors themselves";
  gsc_context *made = nullptr;
  processors = 3000;
  const gsc_status status = gsc_context_create(nullptr, &made);
  processors = 0;
  ASSERT_GSC_OK(status);
  const Context context(made);
  int32_t threads = 0;
  ASSERT_GSC_OK(gsc_context_get_cpu(made, nullptr, &threads));
  EXPECT_EQ(threads, 1024);
}

TEST(Signals, AreForTheCallersThreads) {
  main_thread = pthread_self();
  const std::vector<float> expected = train(make_context(1));
  struct sigaction action = {}, old = {};
  action.sa_handler = handle;  // without SA_RESTART: waiting calls are interrupted
  ASSERT_EQ(sigaction(SIGALRM, &action, &old), 0);
  const itimerval often = {{0, 200}, {0, 200}}, never = {};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  for (int i = 0; i < 20 || (handled < 20 && i < 2000); ++i) EXPECT_EQ(train(make_context(4)), expected);
  ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
  EXPECT_GE(handled.load(), 20);
  EXPECT_FALSE(handled_elsewhere.load());
  sigaction(SIGALRM, &old, nullptr);

  // Whatever mask the thread had that made the workers, it has again; and theirs blocks all but faults.
  const std::set<std::string> before = threads_of_process();
  const Context context = make_context(4);
  train(context);
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGTERM), 0);
  int workers = 0;
  for (const std::string &thread : threads_of_process()) {
    if (before.contains(thread)) continue;
    uint64_t blocked = blocked_signals(thread);
    // While a thread begins or ends, the C library blocks all.
    for (int i = 0; i < 5000 && (blocked >> (SIGSEGV - 1) & 1) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      blocked = blocked_signals(thread);
    }
    const auto blocks = [&](int signal) { return (blocked >> (signal - 1) & 1) != 0; };
    EXPECT_TRUE(blocks(SIGTERM) && blocks(SIGALRM) && blocks(SIGINT)) << std::hex << blocked;
    EXPECT_FALSE(blocks(SIGSEGV) || blocks(SIGFPE) || blocks(SIGBUS)) << std::hex << blocked;
    ++workers;
  }
  EXPECT_GE(workers, 1);
}

TEST(Memory, AFailingCallTakesLittleAndCanDoWithout) {
  if (GSC_SANITIZED) GTEST_SKIP() << "sanitizers need malloc for themselves";
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, 4.0f);
  const auto fails = [&] { return gsc_scaler_set_scale(scaler, -1.0f, nullptr); };
  EXPECT_INVALID(fails(), "scale");  // what the C library makes once is there
  watch_malloc = true;
  const gsc_status watched = fails();
  watch_malloc = false;
  EXPECT_INVALID(watched, "scale");
  EXPECT_EQ(malloc_calls, 1u) << "the exception";
  EXPECT_LE(malloc_bytes, 1024u);
  gsc_error_clear();
  refuse_malloc = true;
  const gsc_status refused = fails();
  refuse_malloc = false;
  EXPECT_INVALID(refused, "gsc_scaler_set_scale: scale is -1");
}

/// What a thread does on a small stack: objects, every optimizer, every list operation, failures with long messages.
void everything(const Context &context) {
  for (const int32_t kind : optimizer_kinds()) {
    Buffer params(GSC_FP32, 5000), wide(GSC_FP64, 3000), grads(GSC_BF16, 5000), wide_grads(GSC_FP64, 3000);
    std::vector<gsc_tensor> p = {params.tensor(), wide.tensor()}, g = {grads.tensor(), wide_grads.tensor()};
    const std::string name(4000, '\n');
    const char *names[] = {name.c_str(), name.c_str()};
    const List param_list = make_list(context, p);
    gsc_tensor_list *named = nullptr;
    EXPECT_EQ(gsc_tensor_list_create(context, g.data(), 2, names, &named), GSC_OK);
    const List grad_list(named);
    const Optimizer optimizer = make_optimizer(context, optimizer_options(kind), param_list, grad_list);
    const Scaler scaler = make_scaler(context, 1024.0f);
    EXPECT_EQ(gsc_scaler_clip_grad_norm(scaler, named, 1.0, GSC_NORM_L2, nullptr), GSC_OK);
    EXPECT_EQ(gsc_scaler_step_and_update(scaler, optimizer, nullptr), GSC_OK);
    EXPECT_EQ(gsc_scaler_unscale(scaler, named, nullptr), GSC_OK);
    EXPECT_EQ(gsc_scaler_check_range(scaler, named, 1, 1, nullptr), GSC_ERROR_BAD_STATE);
    EXPECT_EQ(gsc_scaler_update(scaler, nullptr), GSC_OK);
    EXPECT_EQ(report_status(scaler, named), GSC_OK);
    g[1].dtype = 77;
    EXPECT_EQ(gsc_tensor_list_create(context, g.data(), 2, names, &named), GSC_ERROR_INVALID_ARGUMENT);
    std::vector<gsc_tensor_diagnosis> found(2);
    std::vector<int64_t> histogram(2 * GSC_EXPONENT_BINS);
    EXPECT_EQ(gsc_tensor_list_diagnose_sync(grad_list, found.data(), histogram.data(), 2, nullptr), GSC_OK);
    double norm = 0.0;
    EXPECT_EQ(gsc_ops_norm(context, p.data(), 2, GSC_NORM_L2, &norm, nullptr, nullptr), GSC_OK);
    EXPECT_EQ(gsc_ops_cast(context, p.data(), p.data(), 2, nullptr), GSC_OK);
    int64_t bytes = 0;
    EXPECT_EQ(gsc_optimizer_get_save_size(optimizer, &bytes), GSC_OK);
    std::vector<char> image(bytes);
    EXPECT_EQ(gsc_optimizer_save_sync(optimizer, image.data(), bytes, nullptr), GSC_OK);
    EXPECT_EQ(gsc_optimizer_load_sync(optimizer, image.data(), bytes, nullptr), GSC_OK);
    image[60] ^= 1;
    EXPECT_EQ(gsc_optimizer_load_sync(optimizer, image.data(), bytes, nullptr), GSC_ERROR_INVALID_ARGUMENT);
  }
}

/// A thread that does everything on `bytes` of stack, below which nothing may be touched.
class SmallStack {
 public:
  explicit SmallStack(size_t bytes) : bytes_(bytes) {
    void *memory = mmap(nullptr, bytes + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    EXPECT_EQ(mprotect(memory, kGuard, PROT_NONE), 0);
    stack_ = static_cast<unsigned char *>(memory) + kGuard;
    std::memset(stack_, kPaint, bytes);
  }
  SmallStack &operator=(SmallStack &&) = delete;
  ~SmallStack() { munmap(stack_ - kGuard, bytes_ + kGuard); }

  /// Bytes used below the thread's own function.
  size_t run() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    EXPECT_EQ(pthread_attr_setstack(&attributes, stack_, bytes_), 0);
    pthread_t thread;
    EXPECT_EQ(pthread_create(&thread, &attributes, main, this), 0);
    EXPECT_EQ(pthread_join(thread, nullptr), 0);
    const unsigned char *lowest = stack_;
    while (*lowest == kPaint) ++lowest;
    return top_ - lowest;
  }

 private:
  static constexpr size_t kGuard = 1 << 16;
  static constexpr unsigned char kPaint = 0xa5;
  static void *main(void *argument) {
    static_cast<SmallStack *>(argument)->top_ = static_cast<unsigned char *>(__builtin_frame_address(0));
    everything(make_context(1));
    return nullptr;
  }
  size_t bytes_;
  unsigned char *stack_;
  unsigned char *top_ = nullptr;
};

/// docs/dev/reliability.md: what a call needs of the stack of the thread that makes it.
constexpr size_t kStatedStack = 24 * 1024;

TEST(Stack, ACallNeedsLittle) {
  if (GSC_SANITIZED) GTEST_SKIP() << "sanitizers enlarge frames";
  const size_t used = SmallStack(size_t{1} << 20).run();
  RecordProperty("stack_bytes", used);
  EXPECT_LE(used, kStatedStack);
  EXPECT_GT(used, 1000u) << "nothing was measured";
}

/// A whole thread, of which the C library takes some for itself.
// The C library takes what is thread-local out of a thread's stack, and CUDA's runtime has 12 KiB of it.
TEST(Stack, ASmallThreadIsEnough) {
  if (GSC_SANITIZED) GTEST_SKIP() << "sanitizers enlarge frames";
  const bool cuda = std::strstr(gsc_library_get_build_info(), "CUDA: none") == nullptr;
  EXPECT_GT(SmallStack((cuda ? 48 : 32) * 1024).run(), 1000u);
}

}  // namespace
}  // namespace gsc_test
