// SPDX-License-Identifier: Apache-2.0

// A small NVTX tool is linked into this program: it sees the calls that a profiler would see.

#include <penstock/markers.hpp>

// After it: a user's own NVTX, with unversioned names.
#if __has_include(<nvtx3/nvtx3.hpp>)  // since CUDA 12.9
#include <nvtx3/nvtx3.hpp>
#endif

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace penstock {
namespace {

// ---- The tool
// ------------------------------------------------------------------------------------

/// What the tool knows by a handle: a domain, or a registered string of a domain.
struct Registered {
  std::string text;
  const Registered* domain;
};

struct ToolEvent {
  std::string what;  ///< "push", "pop", "name thread", "name stream", "create resource" ...
  std::string domain;
  std::string text;
  const void* handle = nullptr;  ///< of the registered string
  int message_type = 0;
  int payload_type = 0;
  std::uint32_t category = 0;
  int color_type = 0;
  std::uint32_t color = 0;
  std::uint64_t number = 0;  ///< payload, thread or stream
};

// What the thread of a test does; nothing, and without any lock, on the threads of other tests.
thread_local std::vector<ToolEvent>* events = nullptr;

std::mutex categories_mutex;
std::multiset<std::string> known_categories;

/// Registrations come from whichever thread and test uses a name first.
const Registered* add(std::string text, const Registered* domain) {
  static std::mutex mutex;
  static std::deque<Registered> all;
  const std::lock_guard lock(mutex);
  return &all.emplace_back(Registered{std::move(text), domain});
}

template <class To, class From>
To handle_cast(From handle) {
  return reinterpret_cast<To>(const_cast<Registered*>(reinterpret_cast<const Registered*>(handle)));
}

/// How often a program has asked for a domain. None of another name than these is asked for twice.
std::atomic<int> nobody_created{0}, trainer_created{0}, shared_created{0};

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  if (name == std::string("my trainer")) ++trainer_created;
  if (name == std::string("shared by threads")) ++shared_created;
  // As if no tool were there.
  if (name == std::string("nobody")) return ++nobody_created, nullptr;
  return handle_cast<nvtxDomainHandle_t>(add(name, nullptr));
}
nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t domain, const char* text) {
  return handle_cast<nvtxStringHandle_t>(add(text, handle_cast<Registered*>(domain)));
}
std::string domain_name(nvtxDomainHandle_t domain) {
  return domain == nullptr ? "" : handle_cast<Registered*>(domain)->text;
}
/// Adds an event and returns it, while the thread records; else nullptr.
ToolEvent* note(const char* what) {
  if (events == nullptr) return nullptr;
  events->emplace_back();
  events->back().what = what;
  return &events->back();
}
int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  ToolEvent* event = note("push");
  if (event == nullptr) return 0;
  event->domain = domain_name(domain);
  event->message_type = attributes->messageType;
  event->payload_type = attributes->payloadType;
  event->category = attributes->category;
  event->color_type = attributes->colorType;
  event->color = attributes->color;
  event->number = attributes->payload.ullValue;
  if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    const auto* string = handle_cast<Registered*>(attributes->message.registered);
    if (string->domain == handle_cast<Registered*>(domain)) event->text = string->text;
    event->handle = string;
  }
  return 0;
}
int NVTX_API pop(nvtxDomainHandle_t domain) {
  if (ToolEvent* event = note("pop")) event->domain = domain_name(domain);
  return 0;
}
/// Where and as what the tool knows categories: "penstock 3 forward".
std::multiset<std::string> categories() {
  const std::lock_guard lock(categories_mutex);
  return known_categories;
}
void NVTX_API name_category(nvtxDomainHandle_t domain, std::uint32_t number, const char* name) {
  const std::lock_guard lock(categories_mutex);
  known_categories.insert(domain_name(domain) + ' ' + std::to_string(number) + ' ' + name);
}
void NVTX_API name_thread(std::uint32_t thread, const char* name) {
  if (ToolEvent* event = note("name thread")) event->text = name, event->number = thread;
}
void NVTX_API name_stream(cudaStream_t stream, const char* name) {
  if (ToolEvent* event = note("name stream"))
    event->text = name, event->number = reinterpret_cast<std::uintptr_t>(stream);
}
/// The handle is the stream's.
nvtxResourceHandle_t NVTX_API create_resource(nvtxDomainHandle_t domain,
                                              nvtxResourceAttributes_t* attributes) {
  if (ToolEvent* event = note("create resource")) {
    event->domain = domain_name(domain);
    event->text = attributes->message.ascii;
    event->number = attributes->identifier.ullValue;
  }
  return reinterpret_cast<nvtxResourceHandle_t>(attributes->identifier.ullValue);
}
void NVTX_API destroy_resource(nvtxResourceHandle_t resource) {
  if (ToolEvent* event = note("destroy resource"))
    event->number = reinterpret_cast<std::uintptr_t>(resource);
}

int NVTX_API initialize(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  const auto install = [&](NvtxCallbackModule module, unsigned index, auto* function) {
    NvtxFunctionTable table = nullptr;
    unsigned size = 0;
    if (callbacks->GetModuleFunctionTable(module, &table, &size) == 0 || index >= size)
      return false;
    *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
    return true;
  };
  return install(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateA, &create_domain) &&
         install(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA, &register_string) &&
         install(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, &push) &&
         install(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, &pop) &&
         install(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainResourceCreate, &create_resource) &&
         install(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainResourceDestroy, &destroy_resource) &&
         install(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainNameCategoryA, &name_category) &&
         install(NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_NameOsThreadA, &name_thread) &&
         install(NVTX_CB_MODULE_CUDART, NVTX_CBID_CUDART_NameCudaStreamA, &name_stream);
}

// NVTX looks at this pointer when the program first uses it, which is after main has begun.
[[maybe_unused]] const bool linked_in = [] {
  InitializeInjectionNvtx2_fnptr = &initialize;
  return true;
}();

/// What the tool saw on this thread while it lived.
class Recording {
 public:
  Recording() {
    events_.reserve(64);
    events = &events_;
  }
  ~Recording() { events = nullptr; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  const std::vector<ToolEvent>& stop() {
    events = nullptr;
    return events_;
  }

 private:
  std::vector<ToolEvent> events_;
};

/// A profiler that runs this program comes before the tool that is linked in.
bool profiled() {
  return std::getenv("NVTX_INJECTION64_PATH") != nullptr;
}

struct Augment {
  static constexpr const char* message = "augment";
};
struct Nameless {};
struct Forward {
  static constexpr const char* message = "forward";
  static constexpr MarkerCategory category = markers::category::forward;
};
/// Their names, their domain, their category.
struct Validation {
  static constexpr const char* message = "validation";
  static constexpr MarkerCategory category{100, "evaluation", 0xff112233};
  static constexpr const char* domain = "my trainer";
};
struct Checkpoint {
  static constexpr const char* message = "checkpoint";
  static constexpr const char* domain = "my trainer";
};
struct Unseen {
  static constexpr const char* message = "unseen";
  static constexpr const char* domain = "nobody";
};
static_assert(MarkerName<Augment> && MarkerName<markers::Fill>);
static_assert(!MarkerName<Nameless>);
static_assert(std::is_constructible_v<ScopedRange, Augment, std::uint64_t>);
static_assert(!std::is_constructible_v<ScopedRange, Nameless, std::uint64_t>);
static_assert(!std::is_constructible_v<ScopedRange, const char*, std::uint64_t>);
static_assert(std::is_constructible_v<ScopedRange, RangeName, std::uint64_t>);
static_assert(!std::is_convertible_v<const char*, RangeName>);
static_assert(!std::is_copy_constructible_v<ScopedRange> &&
              !std::is_move_assignable_v<ScopedRange>);

// ---- The tests
// -----------------------------------------------------------------------------------

TEST_CASE("ScopedRange shows a registered name and a number in penstock's domain", "[markers]") {
  if (profiled()) return;
  Recording recording;
  { const ScopedRange range(markers::fill, 0xffff'ffff'ffff'fffe); }
  const std::vector<ToolEvent>& seen = recording.stop();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].what == "push");
  CHECK(seen[0].domain == "penstock");
  CHECK(seen[0].message_type == NVTX_MESSAGE_TYPE_REGISTERED);
  CHECK(seen[0].text == "fill");
  CHECK(seen[0].payload_type == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64);
  CHECK(seen[0].number == 0xffff'ffff'ffff'fffe);
  CHECK(seen[1].what == "pop");
  CHECK(seen[1].domain == "penstock");
}

TEST_CASE("ScopedRange nests, and registers a name once", "[markers]") {
  if (profiled()) return;
  { const ScopedRange first_use(Augment{}, 0), first_fill(markers::fill, 0); }
  Recording recording;
  const std::uint64_t before = test::allocations_of_this_thread();
  {
    const ScopedRange outer(markers::fill, 1);
    const ScopedRange inner(Augment{}, 2);
  }
  const ScopedRange again(Augment{}, 3);
  CHECK(test::allocations_of_this_thread() == before);
  const std::vector<ToolEvent>& seen = recording.stop();
  REQUIRE(seen.size() == 5);
  CHECK(seen[0].text == "fill");
  CHECK(seen[1].text == "augment");
  CHECK(seen[2].what == "pop");
  CHECK(seen[3].what == "pop");
  CHECK(seen[4].number == 3);
  CHECK(seen[4].handle == seen[1].handle);
}

TEST_CASE("Each marker has a name of its own", "[markers]") {
  if (profiled()) return;
  Recording recording;
  const auto show = [](auto... names) { (static_cast<void>(ScopedRange(names, 0)), ...); };
  show(markers::fill, markers::wait_for_room, markers::wait_for_memory, markers::copy,
       markers::next);
  std::set<std::string> names;
  for (const ToolEvent& event : recording.stop())
    if (event.what == "push") names.insert(event.text);
  CHECK(names.size() == 5);
  CHECK(names.count("") == 0);
}

TEST_CASE("A range has its category's number, name and colour", "[markers]") {
  if (profiled()) return;
  Recording recording;
  { const ScopedRange range(Forward{}, 5); }
  { const ScopedRange range(markers::next, 6); }
  { const ScopedRange range(Augment{}, 7); }
  const std::vector<ToolEvent>& seen = recording.stop();
  REQUIRE(seen.size() == 6);
  CHECK(seen[0].text == "forward");
  CHECK(seen[0].category == 3);
  CHECK(seen[0].color_type == NVTX_COLOR_ARGB);
  CHECK(seen[0].color == markers::category::forward.color);
  CHECK(seen[2].category == markers::category::get_batch.number);
  CHECK(seen[2].color == markers::category::get_batch.color);
  CHECK(seen[4].category == 0);  // of a name that says none
  CHECK(seen[4].color_type == NVTX_COLOR_UNKNOWN);
  CHECK(categories().count("penstock 3 forward") == 1);
  CHECK(categories().count("penstock 1 get batch") == 1);
}

TEST_CASE("Categories have numbers, names and colours of their own", "[markers]") {
  namespace category = markers::category;
  std::set<std::uint32_t> numbers, colors;
  std::set<std::string> names;
  for (const MarkerCategory& one :
       {category::get_batch, category::copy, category::forward, category::loss, category::backward,
        category::optimizer, category::read, category::fill, category::wait, category::loop}) {
    CHECK((one.number > 0 && one.number < 100));
    CHECK(one.color >> 24 == 0xff);  // opaque
    numbers.insert(one.number);
    names.insert(one.name);
    colors.insert(one.color);
  }
  CHECK(numbers.size() == 10);
  CHECK(names.size() == 10);
  CHECK(colors.size() == 10);
}

TEST_CASE("A user's names are in the user's domain, which there is once", "[markers]") {
  if (profiled()) return;
  Recording recording;
  {
    const ScopedRange outer(Validation{}, 1);
    const ScopedRange ours(markers::next, 2);
    const ScopedRange inner(Checkpoint{}, 3);
    const ScopedRange named(RangeName("epoch 3", {}, "my trainer"), 4);
  }
  const std::vector<ToolEvent>& seen = recording.stop();
  REQUIRE(seen.size() == 8);
  const char* const texts[] = {"validation", "next", "checkpoint", "epoch 3"};
  for (std::size_t i = 0; i < 4; ++i) {
    INFO(i);
    const char* const domain = i == 1 ? "penstock" : "my trainer";
    CHECK(seen[i].what == "push");
    CHECK(seen[i].text == texts[i]);  // registered in the domain of the range
    CHECK(seen[i].domain == domain);
    CHECK(seen[i].number == i + 1);
    CHECK(seen[7 - i].what == "pop");
    CHECK(seen[7 - i].domain == domain);
  }
  CHECK(seen[0].category == 100);
  CHECK(seen[0].color == 0xff112233);
  CHECK(trainer_created == 1);
  CHECK(categories().count("my trainer 100 evaluation") == 1);
}

TEST_CASE(
    "A RangeName is a name of run time: its text is copied, and ranges of it allocate nothing",
    "[markers]") {
  if (profiled()) return;
  std::string text = "conv1 32x64";
  const RangeName name(text.c_str(), markers::category::forward);
  const RangeName copy = name;
  text.assign(text.size(), '?');
  Recording recording;
  const std::uint64_t before = test::allocations_of_this_thread();
  { const ScopedRange range(name, 42); }
  { const ScopedRange range(copy, 43); }
  CHECK(test::allocations_of_this_thread() == before);
  const std::vector<ToolEvent>& seen = recording.stop();
  REQUIRE(seen.size() == 4);
  CHECK(seen[0].text == "conv1 32x64");
  CHECK(seen[0].domain == "penstock");
  CHECK(seen[0].category == markers::category::forward.number);
  CHECK(seen[0].number == 42);
  CHECK(seen[2].handle == seen[0].handle);
  CHECK(seen[2].number == 43);
}

TEST_CASE("Where no tool wants a domain, its ranges make no call of NVTX", "[markers]") {
  if (profiled()) return;
  Recording recording;
  { const ScopedRange range(Unseen{}, 1); }
  { const ScopedRange range(RangeName("unseen too", {}, "nobody"), 2); }
  { const ScopedRange range(Unseen{}, 3); }
  CHECK(recording.stop().empty());
  CHECK(nobody_created == 1);  // and is asked once
}

TEST_CASE("Threads that need a domain at the same time ask for it once", "[markers]") {
  if (profiled()) return;
  constexpr int threads = 8;
  std::atomic<int> ready{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&] {
      ++ready;
      while (ready < threads) std::this_thread::yield();
      const ScopedRange range(RangeName("work", {}, "shared by threads"), 1);
    });
  for (std::thread& thread : all) thread.join();
  CHECK(shared_created == 1);
}

TEST_CASE("A name or domain that is null is an empty one, or penstock's", "[markers]") {
  if (profiled()) return;
  Recording recording;
  { const ScopedRange range(RangeName(nullptr, {}, nullptr), 1); }
  const std::vector<ToolEvent>& seen = recording.stop();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].text.empty());
  CHECK(seen[0].domain == "penstock");
}

TEST_CASE("Threads and streams get names", "[markers]") {
  if (profiled()) return;
  std::vector<ToolEvent> seen;
  std::uint64_t id = 0;
  std::thread([&] {
    Recording recording;
    markers::name_this_thread("worker");
    id = static_cast<std::uint64_t>(::syscall(SYS_gettid));
    seen = recording.stop();
  }).join();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].what == "name thread");
  CHECK(seen[0].text == "worker");
  CHECK(seen[0].number == id);
  CHECK(id != static_cast<std::uint64_t>(::syscall(SYS_gettid)));

  Recording recording;
  markers::name_stream(reinterpret_cast<cudaStream_t>(std::uintptr_t{4711}), "copies");
  REQUIRE(recording.stop().size() == 1);
  CHECK(recording.stop()[0].what == "name stream");
  CHECK(recording.stop()[0].text == "copies");
  CHECK(recording.stop()[0].number == 4711);
}

TEST_CASE("A stream's name is a resource that ends before the stream", "[markers]") {
  if (profiled()) return;
  Recording recording;
  {
    const markers::StreamName name(reinterpret_cast<cudaStream_t>(std::uintptr_t{4711}), "copies");
  }
  const std::vector<ToolEvent> seen = recording.stop();
  REQUIRE(seen.size() == 3);
  CHECK(seen[0].what == "name stream");
  CHECK(seen[1].what == "create resource");
  CHECK(seen[1].domain == "penstock");
  CHECK(seen[1].text == "copies");
  CHECK(seen[2].what == "destroy resource");
  for (const ToolEvent& event : seen) CHECK(event.number == 4711);
}

TEST_CASE("A user's own NVTX lives beside penstock's, in its own domain", "[markers]") {
  if (profiled()) return;
  Recording recording;
  {
    const nvtx3::scoped_range theirs("theirs");  // unversioned: their header, their version
    const ScopedRange ours(markers::next, 9);
  }
  const std::vector<ToolEvent>& seen = recording.stop();
  REQUIRE(seen.size() == 4);
  CHECK(seen[0].domain == "");
  CHECK(seen[1].domain == "penstock");
}

}  // namespace
}  // namespace penstock
