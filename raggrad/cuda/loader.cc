#include "raggrad/cuda/loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <new>
#include <string>

#include "raggrad/core/first_use.h"
#include "raggrad/core/operands.h"
#include "raggrad/core/version.h"
#include "raggrad/cuda/library.h"

namespace raggrad::cuda {
namespace {

constexpr char kFile[] = "libraggrad_cuda.so";

// The folder of the library or program that contains this code, with a slash at the end.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&FindKernels), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view file = info.dli_fname;
  return std::string(file.substr(0, file.rfind('/') + 1));
}

struct Loaded {
  void* handle = nullptr;
  const Library* library = nullptr;
  std::string reason;  // if there is no handle
};

void* Open(const std::string& file, std::string& reason) {
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) reason = dlerror();
  return handle;
}

// Opens the file that RAGGRAD_CUDA_LIBRARY names, or else the one in this library's folder, or else the one that the
// system finds.
Loaded Load() {
  Loaded loaded;
  if (const char* const named = std::getenv("RAGGRAD_CUDA_LIBRARY"); named != nullptr) {
    loaded.handle = Open(named, loaded.reason);
  } else {
    loaded.handle = Open(OwnFolder() + kFile, loaded.reason);
    if (std::string other; loaded.handle == nullptr) loaded.handle = Open(kFile, other);
  }
  if (loaded.handle == nullptr) return loaded;
  const auto* const library = static_cast<const Library*>(dlsym(loaded.handle, Library::kSymbol));
  if (library == nullptr || library->version != Version()) {
    loaded.handle = nullptr;
    loaded.reason = std::string(kFile) + " is of another version than this library, " + std::string(Version());
  } else if (const Status s = library->start(); !s.ok()) {
    loaded.handle = nullptr;
    loaded.reason = s.message();
  } else {
    loaded.library = library;
  }
  return loaded;
}

const Loaded& LoadOnce() {
  static constinit FirstUse<Loaded> first;
  return first.Get(Load);
}

}  // namespace

Result<const void*> FindKernels(std::string_view op, const char* symbol) noexcept {
  try {
    const Loaded& loaded = LoadOnce();
    if (loaded.handle == nullptr) return NoKernelForDevice(op, Device::Cuda(), loaded.reason);
    const void* const kernels = dlsym(loaded.handle, symbol);
    if (kernels == nullptr) {
      return NoKernelForDevice(op, Device::Cuda(), "not in this build of the CUDA library");
    }
    return kernels;
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory to look for the CUDA library");
  }
}

CurrentGpu::CurrentGpu(int number) noexcept : before_(LoadOnce().library->set_device(number)), number_(number) {}

CurrentGpu::~CurrentGpu() {
  if (!before_.ok() || *before_ == number_) return;
  [[maybe_unused]] const Result<int> restored = LoadOnce().library->set_device(*before_);
}

}  // namespace raggrad::cuda
