// Closes a library whose threads live: it must stay loaded, so that signals, fork() and exit() still find its code.
//
//   dlclose_test <library> <function of it that returns an Executor&>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "raggrad/core/executor.h"

namespace {

bool is_child = false;

// Returns how many there are. A sleeping thread returns to the library's code after the signal.
int SignalEveryThread() {
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    syscall(SYS_tgkill, getpid(), std::stoi(task.path().filename()), SIGUSR1);
    ++threads;
  }
  usleep(20'000);
  return threads;
}

bool OpensRunsAndCloses(const char* library, const char* symbol) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), false;
  const auto executor = reinterpret_cast<raggrad::Executor& (*)()>(dlsym(handle, symbol));
  if (executor == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), false;
  std::atomic<int> ran = 0;
  const auto body = [&](int64_t) { ran.fetch_add(1); };
  executor().Run(100, body);
  return dlclose(handle) == 0 && ran.load() == 100;
}

bool AChildEndsWell() {
  const pid_t child = fork();
  if (child == 0) {
    is_child = true;
    std::exit(0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

// LeakSanitizer asks this at the end of a process. Its check takes 3 s on aarch64, and a child has nothing of its own.
extern "C" int __lsan_is_turned_off() { return is_child; }

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  setenv("RAGGRAD_NUM_THREADS", "4", 1);
  std::signal(SIGUSR1, [](int) {});
  for (int round = 0; round < 5; ++round) {
    if (!OpensRunsAndCloses(argv[1], argv[2])) return 3;
    if (SignalEveryThread() < 4) return 4;
    if (!AChildEndsWell()) return 5;
  }
  return 0;
}
