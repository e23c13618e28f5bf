// Compares comm/nccl_api.h with NCCL's own header, where there is one.
#include "comm/nccl_api.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

namespace longstride::comm::nccl {

static_assert(kSuccess == static_cast<int>(ncclSuccess));
static_assert(kUnhandledCudaError == static_cast<int>(ncclUnhandledCudaError));
static_assert(kSystemError == static_cast<int>(ncclSystemError));
static_assert(kInternalError == static_cast<int>(ncclInternalError));
static_assert(kInvalidArgument == static_cast<int>(ncclInvalidArgument));
static_assert(kInvalidUsage == static_cast<int>(ncclInvalidUsage));
static_assert(kRemoteError == static_cast<int>(ncclRemoteError));
static_assert(kInProgress == static_cast<int>(ncclInProgress));
static_assert(sizeof(Result) == sizeof(ncclResult_t) && sizeof(DataType) == sizeof(ncclDataType_t));
static_assert(kInt8 == static_cast<int>(ncclInt8) && kUint8 == static_cast<int>(ncclUint8));
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(cudaStream_t) == sizeof(void*));

using Init = ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
using Send = ncclResult_t(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
using Receive = ncclResult_t(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
using Broadcast = ncclResult_t(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                               cudaStream_t);
static_assert(std::is_same_v<decltype(ncclCommInitRankConfig), Init>);
static_assert(std::is_same_v<decltype(ncclSend), Send>);
static_assert(std::is_same_v<decltype(ncclRecv), Receive>);
static_assert(std::is_same_v<decltype(ncclBroadcast), Broadcast>);
static_assert(std::is_same_v<decltype(ncclGetVersion), ncclResult_t(int*)>);
static_assert(std::is_same_v<decltype(ncclGetUniqueId), ncclResult_t(ncclUniqueId*)>);
static_assert(std::is_same_v<decltype(ncclCommFinalize), ncclResult_t(ncclComm_t)>);
static_assert(std::is_same_v<decltype(ncclCommDestroy), ncclResult_t(ncclComm_t)>);
static_assert(std::is_same_v<decltype(ncclCommAbort), ncclResult_t(ncclComm_t)>);
static_assert(
    std::is_same_v<decltype(ncclCommGetAsyncError), ncclResult_t(ncclComm_t, ncclResult_t*)>);
static_assert(std::is_same_v<decltype(ncclGetErrorString), const char*(ncclResult_t)>);
static_assert(std::is_same_v<decltype(ncclGetLastError), const char*(ncclComm_t)>);
static_assert(std::is_same_v<decltype(ncclGroupStart), ncclResult_t()>);
static_assert(std::is_same_v<decltype(ncclGroupEnd), ncclResult_t()>);

}  // namespace longstride::comm::nccl
#endif
