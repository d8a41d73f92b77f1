// See context.hpp.
#include "context.hpp"

#include <penstock/error.hpp>

#include <collectives/ticket.hpp>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <sys/statvfs.h>

namespace penstock::ucx {

namespace {

// Names of UCX for all transports through memory at once, and for the single transports.
constexpr std::string_view kAllMemory[] = {"sm", "shm", "mm"};
constexpr std::string_view kMemory[] = {"posix", "sysv", "cma", "knem", "xpmem"};
// Names of transports for memory of CUDA devices.
constexpr std::string_view kCuda[] = {"cuda", "cuda_copy", "cuda_ipc", "gdr_copy"};

// Bytes in flight to one rank from all others: about the bytes that a link of 25 Gb/s carries in
// 100 us. With 384 KiB the queue before a link of 100 Mb/s overflows. Each connection has an equal
// share, but at least a segment.
constexpr uint64_t kSharedLinkBuffers = uint64_t(288) << 10;
constexpr uint64_t kLeastBuffer = uint64_t(64) << 10;

// Eleven days. UCX counts in ticks of the processor and cannot express infinity.
constexpr std::string_view kNeverAsks = "1000000s";

template <size_t N>
bool contains(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    names.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return names;
}

// For a list such as "^tcp,cma", which excludes these transports: the remaining transports through
// memory. Only transports that every Linux has can be named then.
std::string all_but(const std::vector<std::string>& names) {
  std::string left;
  for (const std::string& name : names)
    if (contains(kAllMemory, name)) return "";
  for (const std::string_view one : {"posix", "sysv", "cma"})
    if (std::find(names.begin(), names.end(), one) == names.end()) left.append(one).append(",");
  return left == "cma," ? "" : left;  // `cma` alone cannot work, it only helps other transports
}

// "3 of 64 MiB free".
std::string room_in_dev_shm() {
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) != 0) return "there is none";
  const auto mebibytes = [&](uint64_t blocks) { return blocks * room.f_frsize >> 20; };
  return sdk::text(mebibytes(room.f_bavail), " of ", mebibytes(room.f_blocks), " MiB free");
}

// The list from the option, or else from the variable UCX_TLS.
std::string list_of(const Selection& selection) {
  const char* const variable = std::getenv("UCX_TLS");
  return selection.transports.empty() && variable != nullptr ? variable : selection.transports;
}

}  // namespace

Selection memory_of(const Selection& selection, bool devices) {
  const std::string list = list_of(selection);
  std::string memory;
  if (list.empty() || list == "all") {
    memory = "sm,";
  } else if (list[0] == '^') {
    memory = all_but(names_in(std::string_view(list).substr(1)));
  } else {
    for (const std::string& name : names_in(list))
      if (contains(kAllMemory, name) || contains(kMemory, name)) memory += name + ",";
  }
  if (memory.empty()) return {"", ""};
  if (devices) memory += "cuda,";
  return {memory + "self", ""};
}

std::string without_dev_shm(const std::string& transports) {
  if (transports.empty() || transports == "all") return "^posix";
  if (transports[0] == '^')
    return all_but(names_in(std::string_view(transports).substr(1))).find("posix") ==
                   std::string::npos
               ? ""
               : transports + ",posix";
  std::string left;
  bool has_posix = false;
  for (const std::string& name : names_in(transports)) {
    const bool is_all = contains(kAllMemory, name);
    has_posix = has_posix || is_all || name == "posix";
    if (name == "posix") continue;
    if (!left.empty()) left += ",";
    left += is_all ? "sysv,cma" : name;
  }
  return has_posix ? left : "";
}

bool allows_cuda(const Selection& selection) {
  const std::string list = list_of(selection);
  if (list.empty() || list == "all") return true;
  const bool excludes = list[0] == '^';
  const std::vector<std::string> names = names_in(std::string_view(list).substr(excludes ? 1 : 0));
  return excludes != std::any_of(names.begin(), names.end(),
                                 [](const std::string& name) { return contains(kCuda, name); });
}

bool leaves_tcp_open(const Selection& selection) {
  if (!selection.devices.empty() || std::getenv("UCX_NET_DEVICES") != nullptr) return false;
  const std::string list = list_of(selection);
  if (list.empty() || list == "all") return true;
  const bool excludes = list[0] == '^';
  const std::vector<std::string> names = names_in(std::string_view(list).substr(excludes ? 1 : 0));
  return excludes != (std::find(names.begin(), names.end(), "tcp") != names.end());
}

Selection network_of(Selection selection, uint32_t n_senders) {
  const auto is_set = [](const char* variable) { return std::getenv(variable) != nullptr; };
  if (!is_set("UCX_RNDV_THRESH"))
    selection.announced = std::to_string(collectives::kShortSegment + 1);
  if (!is_set("UCX_TCP_KEEPIDLE")) selection.idle = "inf";
  if (!is_set("UCX_KEEPALIVE_INTERVAL")) selection.asks = kNeverAsks;
  if (selection.socket_buffer.empty() && n_senders > 1 && !is_set("UCX_TCP_SNDBUF") &&
      !is_set("UCX_TCP_RCVBUF"))
    selection.socket_buffer =
        std::to_string(std::max(kLeastBuffer, kSharedLinkBuffers / n_senders));
  return selection;
}

void check(ucs_status_t status, const char* what, uint32_t code) {
  if (status != UCS_OK) throw sdk::Error(code, sdk::text(what, ": ", ucs_status_string(status)));
}

ucs_status_t Context::open(const Selection& selection, uint32_t n_peers) {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read", PENSTOCK_INTERNAL);
  ucs_status_t status = UCS_OK;
  const auto choose = [&](const char* name, const std::string& value) {
    if (status == UCS_OK && !value.empty()) status = ucp_config_modify(config, name, value.c_str());
  };
  choose("TLS", selection.transports);
  choose("NET_DEVICES", selection.devices);
  choose("RNDV_THRESH", selection.announced);
  // An option of one transport: in UCX 1.13 its name has no prefix of the transport, unlike the
  // variable, and any name is accepted. In UCX 1.22 its name has the prefix, and no other name is
  // accepted.
  const auto choose_of_tcp = [&](const std::string& name, const std::string& value) {
    if (status != UCS_OK || value.empty()) return;
    const ucs_status_t as_before = ucp_config_modify(config, name.c_str(), value.c_str());
    status = ucp_config_modify(config, ("TCP_" + name).c_str(), value.c_str());
    if (as_before == UCS_OK) status = UCS_OK;
  };
  choose_of_tcp("SNDBUF", selection.socket_buffer);
  choose_of_tcp("RCVBUF", selection.socket_buffer);
  choose_of_tcp("PORT_RANGE", selection.ports);
  choose_of_tcp("KEEPIDLE", selection.idle);
  choose("KEEPALIVE_INTERVAL", selection.asks);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG;
  params.estimated_num_eps = n_peers;
  if (status == UCS_OK) status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK)
    throw sdk::Error(
        PENSTOCK_FAILED_PRECONDITION,
        sdk::text("UCX cannot start with transports \"", selection.transports, "\" and devices \"",
                  selection.devices, "\": ", ucs_status_string(status),
                  "; `ucx_info -d` lists the transports and devices of this host"));
  return open_worker();
}

ucs_status_t Context::open_worker() {
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status = ucp_worker_create(context_, &worker, &worker_);
  if (status != UCS_OK) ucp_cleanup(context_);
  return status;
}

ucs_status_t Context::open_without_dev_shm(Selection selection, uint32_t n_peers,
                                           ucs_status_t refused) {
  const std::string list = without_dev_shm(list_of(selection));
  if (list.empty()) return refused;
  selection.transports = list;
  try {
    if (open(selection, n_peers) != UCS_OK) return refused;
  } catch (const sdk::Error&) {
    return refused;  // the first error is the one that helps
  }
  sdk::log(PENSTOCK_LOG_WARNING, "collective/ucx",
           sdk::text("UCX got no memory in /dev/shm (", room_in_dev_shm(),
                     "): ", ucs_status_string(refused), ". It goes on with UCX_TLS=", list,
                     ". A rank takes 9 MiB there; in a container give more, as in `docker run "
                     "--shm-size=1g`, or set UCX_TLS to what is named here"));
  return UCS_OK;
}

Context::Context(const Selection& selection, uint32_t n_peers) {
  ucs_status_t status = open(selection, n_peers);
  if (status != UCS_OK) status = open_without_dev_shm(selection, n_peers, status);
  if (status != UCS_OK && !selection.ports.empty())
    throw sdk::Error(
        PENSTOCK_FAILED_PRECONDITION,
        sdk::text("UCX cannot listen at ports ", selection.ports, ": ", ucs_status_string(status),
                  "; each rank of a host takes one for each of its network devices, so "
                  "give [collective.ucx] more ports, or devices = \"eth0\""));
  if (status != UCS_OK)
    throw sdk::Error(
        PENSTOCK_FAILED_PRECONDITION,
        sdk::text(
            "UCX cannot start: ", ucs_status_string(status),
            "; a limit of this process or of its container may be reached: open files (ulimit "
            "-n), or /dev/shm, which has ",
            room_in_dev_shm()));
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return;  // no other rank will find this rank
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
}

bool Context::takes_cuda() const {
#if UCP_API_VERSION >= UCP_VERSION(1, 11)
  ucp_context_attr_t about{};
  about.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return ucp_context_query(context_, &about) == UCS_OK &&
         (about.memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0;
#else
  return false;
#endif
}

bool Context::has_let_go() {
  if (n_let_go_ == n_sends_) return true;
  if (flush_ == nullptr) {
    const ucp_request_param_t param{};
    n_flushed_ = n_sends_;
    flush_ = ucp_worker_flush_nbx(worker_, &param);
  }
  if (UCS_PTR_IS_PTR(flush_)) {
    if (ucp_request_check_status(flush_) == UCS_INPROGRESS) return false;
    ucp_request_free(flush_);
  }
  // Data that could not be flushed is lost together with its receiver.
  flush_ = nullptr;
  n_let_go_ = n_flushed_;
  return n_let_go_ == n_sends_;
}

Context::~Context() {
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

}  // namespace penstock::ucx
