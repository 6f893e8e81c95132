// BatchingRuntime: finds the resource of a call, and builds blocking calls and futures on the asynchronous ones.
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <tuple>
#include <utility>
#include <variant>

#include "raggrad/core/fork.h"
#include "raggrad/ops/batching/batch/batch.h"
#include "raggrad/ops/batching/batching.h"
#include "raggrad/ops/batching/unbatch/unbatch.h"
#include "raggrad/ops/batching/unbatch_grad/unbatch_grad.h"

namespace raggrad {

using batching::BatchResource;
using batching::CancelGuard;
using batching::Environment;
using batching::Resource;
using batching::Turn;
using batching::UnbatchGradResource;
using batching::UnbatchResource;

namespace {

std::string_view OpName(ResourceKind kind) noexcept {
  switch (kind) {
    case ResourceKind::kBatch:
      return "Batch";
    case ResourceKind::kUnbatch:
      return "Unbatch";
    case ResourceKind::kUnbatchGrad:
      return "UnbatchGrad";
  }
  return "Batching";
}

// Maps each 64-bit number to another one, without repeats, so that successive ids look random.
uint64_t Scramble(uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t RandomSeed() noexcept {
  try {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32) | device();
  } catch (const std::exception&) {
    return static_cast<uint64_t>(batching::Clock::now().time_since_epoch().count());
  }
}

// Runs `body() -> Result<std::shared_ptr<R>>`. On an error, or without memory, completes the call and returns null.
template <class R, class T, class Body>
std::shared_ptr<R> Guard(ResourceKind kind, Completion<T>& done, const Body& body) noexcept {
  if (!done) done = [](const Result<T>& /*result*/) {};
  Result<std::shared_ptr<R>> resource = WithOp(OpName(kind), [&]() -> Result<std::shared_ptr<R>> {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return Status(Code::kResourceExhausted, "no memory for the call");
    }
  });
  if (resource.ok()) return *std::move(resource);
  done(resource.status());
  return nullptr;
}

template <class T, class Start>
std::future<Result<T>> MakeFuture(const Start& start) {
  // Shared, because std::function has to be copyable.
  auto promise = std::make_shared<std::promise<Result<T>>>();
  std::future<Result<T>> future = promise->get_future();
  start(Completion<T>([promise](Result<T> value) { promise->set_value(std::move(value)); }));
  return future;
}

}  // namespace

struct BatchingRuntime::State {
  using Name = std::tuple<ResourceKind, std::string, std::string>;
  using NameView = std::tuple<ResourceKind, std::string_view, std::string_view>;
  struct Before {
    using is_transparent = void;
    bool operator()(const NameView& a, const NameView& b) const noexcept { return a < b; }
  };
  using Resources = std::map<Name, std::shared_ptr<Resource>, Before>;

  State(const Context& ctx, const ResourceLimits& default_limits)
      : environment(std::make_shared<Environment>()), limits(default_limits) {
    environment->ctx = ctx;
  }

  static NameView FullName(ResourceKind kind, const ResourceName& resource) noexcept {
    return {kind, resource.container, resource.name.empty() ? OpName(kind) : std::string_view(resource.name)};
  }

  bool forked() const noexcept { return fork_generation != ForkGeneration(); }

  static Status CheckUsable(const State* state, ResourceKind kind) noexcept {
    if (state == nullptr) return MakeError(Code::kResourceExhausted, OpName(kind), ": no memory for the runtime");
    if (state->forked()) {
      return MakeError(Code::kUnavailable, OpName(kind),
                       ": this runtime was made before fork(); make one in the child");
    }
    return state->ends ? EndsError(kind) : Status();
  }
  static Status EndsError(ResourceKind kind) noexcept {
    return MakeError(Code::kCancelled, OpName(kind), ": the runtime is being destroyed");
  }

  std::shared_ptr<Resource> Find(ResourceKind kind, const ResourceName& resource, bool remove) noexcept {
    const std::lock_guard lock(mutex);
    const auto found = resources.find(FullName(kind, resource));
    if (found == resources.end()) return nullptr;
    std::shared_ptr<Resource> result = found->second;
    if (remove) resources.erase(found);
    return result;
  }

  // Makes the call, `call(R&) -> bool`, on the resource of that name. If there is none, `make()` makes it, a
  // Result<std::shared_ptr<R>>. `call` returns false if the resource has been closed since it was found; then it is
  // looked for again.
  template <class R, class Make, class Call>
  Result<std::shared_ptr<R>> Meet(ResourceKind kind, const ResourceName& name, const Make& make, const Call& call) {
    for (;;) {
      std::shared_ptr<R> resource = std::static_pointer_cast<R>(Find(kind, name, /*remove=*/false));
      if (resource == nullptr) {
        Result<std::shared_ptr<R>> made = make();
        if (!made.ok()) return made;
        const std::lock_guard lock(mutex);
        if (ends) return EndsError(kind);
        const auto [position, inserted] = resources.try_emplace(Name(FullName(kind, name)), *made);
        resource = std::static_pointer_cast<R>(position->second);  // another thread may have been faster
      }
      if (call(*resource)) return resource;
    }
  }

  void CloseAll() noexcept {
    Resources closing;
    {
      const std::lock_guard lock(mutex);
      closing.swap(resources);
    }
    const auto rest = [&] {
      while (!closing.empty()) closing.extract(closing.begin()).mapped()->Close();
    };
    const Turn turn(environment->cancellers, rest);
    rest();
  }

  // Lets no further resource be made, so that CloseAll finds all of them.
  void RefuseCalls() noexcept {
    const std::lock_guard lock(mutex);
    ends = true;
  }

  // Begins a call and takes over `done`. Returns the resource of the call; null if it has ended before it got there.
  static std::shared_ptr<UnbatchGradResource> Begin(State* state, const UnbatchGradCall& call, Completion<Tensor>& done,
                                                    UnbatchGradResource::Blocked* blocked) noexcept;
  static std::shared_ptr<UnbatchResource> Begin(State* state, const UnbatchCall& call, Completion<Tensor>& done,
                                                bool blocked) noexcept;
  static std::shared_ptr<BatchResource> Begin(State* state, const BatchCall& call, Completion<BatchOutput>& done,
                                              BatchResource::Blocked* blocked) noexcept;

  const std::shared_ptr<Environment> environment;
  const ResourceLimits limits;
  const int fork_generation = ForkGeneration();
  const uint64_t id_seed = RandomSeed();
  std::atomic<uint64_t> ids_drawn{0};
  std::atomic<bool> ends{false};  // written under the lock
  std::mutex mutex;
  Resources resources;
  std::shared_ptr<State> itself;  // set in a child of fork(): then nothing here is ever destroyed
};

std::shared_ptr<UnbatchGradResource> BatchingRuntime::State::Begin(State* state, const UnbatchGradCall& call,
                                                                   Completion<Tensor>& done,
                                                                   UnbatchGradResource::Blocked* blocked) noexcept {
  constexpr ResourceKind kKind = ResourceKind::kUnbatchGrad;
  return Guard<UnbatchGradResource>(kKind, done, [&]() -> Result<std::shared_ptr<UnbatchGradResource>> {
    if (Status s = CheckUsable(state, kKind); !s.ok()) return s;
    auto request = batching::CheckUnbatchGrad(state->environment->ctx, call);
    if (!request.ok()) return request.status();
    const auto make = [&]() -> Result<std::shared_ptr<UnbatchGradResource>> {
      return std::make_shared<UnbatchGradResource>(state->environment, OpName(kKind), state->limits);
    };
    return state->Meet<UnbatchGradResource>(kKind, call.resource, make, [&](UnbatchGradResource& resource) {
      return resource.Call(*request, done, blocked);
    });
  });
}

std::shared_ptr<UnbatchResource> BatchingRuntime::State::Begin(State* state, const UnbatchCall& call,
                                                               Completion<Tensor>& done, bool blocked) noexcept {
  constexpr ResourceKind kKind = ResourceKind::kUnbatch;
  return Guard<UnbatchResource>(kKind, done, [&]() -> Result<std::shared_ptr<UnbatchResource>> {
    if (Status s = CheckUsable(state, kKind); !s.ok()) return s;
    auto request = batching::CheckUnbatch(state->environment->ctx, call);
    if (!request.ok()) return request.status();
    const auto make = [&]() -> Result<std::shared_ptr<UnbatchResource>> {
      ResourceLimits own_limits = state->limits;
      if (call.timeout_micros) own_limits.default_timeout = own_limits.max_piece_age = WaitTime(*call.timeout_micros);
      return std::make_shared<UnbatchResource>(state->environment, OpName(kKind), own_limits);
    };
    return state->Meet<UnbatchResource>(
        kKind, call.resource, make, [&](UnbatchResource& resource) { return resource.Call(*request, done, blocked); });
  });
}

std::shared_ptr<BatchResource> BatchingRuntime::State::Begin(State* state, const BatchCall& call,
                                                             Completion<BatchOutput>& done,
                                                             BatchResource::Blocked* blocked) noexcept {
  constexpr ResourceKind kKind = ResourceKind::kBatch;
  return Guard<BatchResource>(kKind, done, [&]() -> Result<std::shared_ptr<BatchResource>> {
    if (Status s = CheckUsable(state, kKind); !s.ok()) return s;
    auto request = batching::CheckBatch(state->environment->ctx, call, blocked != nullptr);
    if (!request.ok()) return request.status();
    if (request->rows == 0) {
      Result<BatchOutput> nothing = batching::NoRowsOutput(state->environment->ctx, *request);
      request->tensors.clear();
      done(std::move(nothing));
      return std::shared_ptr<BatchResource>();
    }
    const auto make = [&]() -> Result<std::shared_ptr<BatchResource>> {
      if (Status s = batching::CheckBatchOptions(call); !s.ok()) return s;
      return std::make_shared<BatchResource>(state->environment, state->limits, call);
    };
    const auto id = static_cast<int64_t>(Scramble(state->id_seed + state->ids_drawn.fetch_add(1)));
    return state->Meet<BatchResource>(kKind, call.resource, make, [&](BatchResource& resource) {
      return resource.Call(call, *request, id, done, blocked);
    });
  });
}

BatchingRuntime::BatchingRuntime(const Context& ctx, const ResourceLimits& limits) noexcept {
  try {
    state_ = std::make_shared<State>(ctx, limits);
  } catch (const std::bad_alloc&) {  // every call will say so
  }
}

BatchingRuntime::~BatchingRuntime() {
  if (!state_) return;
  if (state_->forked()) {  // locks may be held, and the timer's threads cannot be joined
    state_->itself = state_;
    return;
  }
  Environment& environment = *state_->environment;
  state_->RefuseCalls();
  Turn::FinishOwn(environment.cancellers);
  state_->CloseAll();
  environment.timer.Stop();
  CancelGuard::AwaitOthers(environment.cancellers);
}

void BatchingRuntime::UnbatchGradAsync(const UnbatchGradCall& call, Completion<Tensor> done) noexcept {
  State::Begin(state_.get(), call, done, nullptr);
}
void BatchingRuntime::UnbatchAsync(const UnbatchCall& call, Completion<Tensor> done) noexcept {
  State::Begin(state_.get(), call, done, /*blocked=*/false);
}
void BatchingRuntime::BatchAsync(const BatchCall& call, Completion<BatchOutput> done) noexcept {
  State::Begin(state_.get(), call, done, nullptr);
}

Result<Tensor> BatchingRuntime::UnbatchGrad(const UnbatchGradCall& call) noexcept {
  UnbatchGradResource::Blocked blocked(call.waiting);
  Completion<Tensor> done = blocked.completion();
  const auto resource = State::Begin(state_.get(), call, done, &blocked);
  return blocked.Wait([&](batching::UnbatchGradEnding& ending) { resource->Conclude(ending); });
}
Result<Tensor> BatchingRuntime::Unbatch(const UnbatchCall& call) noexcept {
  batching::BlockedCall<Tensor, std::monostate> blocked(call.waiting);
  Completion<Tensor> done = blocked.completion();
  State::Begin(state_.get(), call, done, /*blocked=*/true);
  return blocked.Wait([](std::monostate) {});  // a piece is cut by the call that brings it: no work is handed over
}
Result<BatchOutput> BatchingRuntime::Batch(const BatchCall& call) noexcept {
  BatchResource::Blocked blocked(call.waiting);
  Completion<BatchOutput> done = blocked.completion();
  const auto resource = State::Begin(state_.get(), call, done, &blocked);
  return blocked.Wait([&](BatchResource::Tasks& tasks) { resource->Process(tasks); });
}

std::future<Result<Tensor>> BatchingRuntime::UnbatchGradFuture(const UnbatchGradCall& call) {
  return MakeFuture<Tensor>([&](Completion<Tensor> done) { UnbatchGradAsync(call, std::move(done)); });
}
std::future<Result<Tensor>> BatchingRuntime::UnbatchFuture(const UnbatchCall& call) {
  return MakeFuture<Tensor>([&](Completion<Tensor> done) { UnbatchAsync(call, std::move(done)); });
}
std::future<Result<BatchOutput>> BatchingRuntime::BatchFuture(const BatchCall& call) {
  return MakeFuture<BatchOutput>([&](Completion<BatchOutput> done) { BatchAsync(call, std::move(done)); });
}

template <class F>
Status BatchingRuntime::WithResource(ResourceKind kind, const ResourceName& resource, bool remove,
                                     const F& f) const noexcept {
  if (Status s = State::CheckUsable(state_.get(), kind); !s.ok()) return s;
  const std::shared_ptr<Resource> found = state_->Find(kind, resource, remove);
  if (!found) {
    return MakeError(Code::kNotFound, OpName(kind), ": no resource '", resource.name, "' in container '",
                     resource.container, "'");
  }
  f(*found);
  return {};
}

Status BatchingRuntime::SetLimits(ResourceKind kind, const ResourceName& resource,
                                  const ResourceLimits& limits) noexcept {
  return WithResource(kind, resource, /*remove=*/false, [&](Resource& found) { found.SetLimits(limits); });
}

Result<ResourceLimits> BatchingRuntime::Limits(ResourceKind kind, const ResourceName& resource) const noexcept {
  ResourceLimits limits;
  const Status status =
      WithResource(kind, resource, /*remove=*/false, [&](const Resource& found) { limits = found.Limits(); });
  if (!status.ok()) return status;
  return limits;
}

Result<ResourceStatistics> BatchingRuntime::Statistics(ResourceKind kind, const ResourceName& resource) const noexcept {
  ResourceStatistics statistics;
  const Status status =
      WithResource(kind, resource, /*remove=*/false, [&](const Resource& found) { statistics = found.Statistics(); });
  if (!status.ok()) return status;
  return statistics;
}

Status BatchingRuntime::Close(ResourceKind kind, const ResourceName& resource) noexcept {
  return WithResource(kind, resource, /*remove=*/true, [](Resource& found) { found.Close(); });
}

void BatchingRuntime::CloseAll() noexcept {
  if (state_ && !state_->forked()) state_->CloseAll();
}

}  // namespace raggrad
