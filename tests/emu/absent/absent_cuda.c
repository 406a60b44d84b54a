/* A libcuda.so.1 without a GPU for tests with NVIDIA's cuDNN, which needs a driver's file to compile
 * kernels. Calls fail with CUDA_ERROR_NO_DEVICE, but modules load, so that plans can be finalized.
 * Kernels cannot be launched. */
#define API __attribute__((visibility("default")))

enum { NO_DEVICE = 100 };

API int cuDriverGetVersion(int *version)
{
    *version = 12090;
    return 0;
}

API int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "no device";
    return 0;
}

API int cuGetErrorName(int error, const char **text)
{
    return cuGetErrorString(error, text);
}

/* A handle that is not NULL. */
static int open_module(void **handle)
{
    static char module;
    *handle = &module;
    return 0;
}

API int cuModuleLoadData(void **handle, const void *image)
{
    (void)image;
    return open_module(handle);
}

API int cuLibraryLoadData(void **handle)
{
    return open_module(handle);
}

API int cuLibraryGetKernel(void **handle)
{
    return open_module(handle);
}

API int cuKernelGetFunction(void **handle)
{
    return open_module(handle);
}

API int cuModuleGetFunction(void **handle)
{
    return open_module(handle);
}

#define ACCEPTS(name)                                                                              \
    API int name(void)                                                                             \
    {                                                                                              \
        return 0;                                                                                  \
    }
ACCEPTS(cuKernelSetAttribute)
ACCEPTS(cuKernelGetAttribute)
ACCEPTS(cuLibraryUnload)
ACCEPTS(cuModuleUnload)

#define FAILS(name)                                                                                \
    API int name(void)                                                                             \
    {                                                                                              \
        return NO_DEVICE;                                                                          \
    }
FAILS(cuInit)
FAILS(cuTensorMapEncodeTiled)
FAILS(cuTensorMapEncodeIm2col)
FAILS(cuCtxGetCurrent)
FAILS(cuCtxGetLimit)
FAILS(cuCtxPopCurrent)
FAILS(cuCtxPushCurrent)
FAILS(cuDeviceGet)
FAILS(cuDeviceGetCount)
FAILS(cuLaunchCooperativeKernel)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuLibraryLoadFromFile)
FAILS(cuLinkAddData)
FAILS(cuLinkComplete)
FAILS(cuLinkCreate)
FAILS(cuLinkDestroy)
FAILS(cuOccupancyMaxPotentialClusterSize)
FAILS(cuStreamGetCtx)
