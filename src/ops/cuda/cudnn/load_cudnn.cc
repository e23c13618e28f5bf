// The functions of cuDNN that we and its front end call.
#include <cudnn.h>

#include "device/cuda/loaded_library.h"

#define LS_CUDNN(Result, name, parameters, arguments) \
  LS_FORWARD(longstride::cuda::cudnn_library(), Result, name, parameters, arguments)

extern "C" {
LS_CUDNN(std::size_t, cudnnGetVersion, (), ())
LS_CUDNN(const char*, cudnnGetErrorString, (cudnnStatus_t status), (status))
LS_CUDNN(void, cudnnGetLastErrorString, (char* message, std::size_t size), (message, size))
LS_CUDNN(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle))
LS_CUDNN(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))
LS_CUDNN(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream),
         (handle, stream))
LS_CUDNN(cudnnStatus_t, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream),
         (handle, stream))
LS_CUDNN(cudnnStatus_t, cudnnBackendCreateDescriptor,
         (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made), (type, made))
LS_CUDNN(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor),
         (descriptor))
LS_CUDNN(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))
LS_CUDNN(cudnnStatus_t, cudnnBackendSetAttribute,
         (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
          cudnnBackendAttributeType_t type, std::int64_t count, const void* elements),
         (descriptor, name, type, count, elements))
LS_CUDNN(cudnnStatus_t, cudnnBackendGetAttribute,
         (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
          cudnnBackendAttributeType_t type, std::int64_t wanted, std::int64_t* count,
          void* elements),
         (descriptor, name, type, wanted, count, elements))
LS_CUDNN(cudnnStatus_t, cudnnBackendExecute,
         (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variants),
         (handle, plan, variants))
}
