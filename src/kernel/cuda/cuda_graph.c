#include "kernel/cuda/cuda_graph.h"

#include "base/memory.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"

#include <stdlib.h>
#include <string.h>

struct weft_device_graph {
    cuda_graph_exec exec;
};

static bool is_off(void)
{
    const char *graphs = getenv("WEFT_CUDA_GRAPHS"), *sync = getenv("WEFT_CUDA_SYNC");
    return (graphs && !strcmp(graphs, "off")) || (sync && !strcmp(sync, "1"));
}

static weft_status_code begin(weft_device_stream *stream)
{
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    if (is_off() || !weft_cuda_stream_begin(stream, "a graph"))
        return WEFT_E_UNSUPPORTED;
    const cuda_result result =
        gpu->driver->capture_begin(weft_cuda_stream_handle(stream), CUDA_CAPTURE_THREAD_LOCAL);
    return result == CUDA_OK ? WEFT_OK : WEFT_E_UNSUPPORTED;
}

static weft_status_code end(weft_device_stream *stream, weft_device_graph **out)
{
    const weft_cuda_gpu *gpu;
    cuda_graph graph = NULL;
    weft_device_graph *made;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    (void)weft_cuda_stream_begin(stream, "a graph"); /* issues the launches of the graph */
    if (gpu->driver->capture_end(weft_cuda_stream_handle(stream), &graph) != CUDA_OK || !graph)
        return WEFT_E_UNSUPPORTED;
    made = weft_calloc(1, sizeof *made);
    const cuda_result result =
        made ? gpu->driver->graph_instantiate(&made->exec, graph, 0) : CUDA_OUT_OF_MEMORY;
    gpu->driver->graph_destroy(graph);
    if (result != CUDA_OK) {
        weft_free(made);
        return WEFT_E_UNSUPPORTED;
    }
    *out = made;
    return WEFT_OK;
}

static void launch(weft_device_stream *stream, weft_device_graph *graph)
{
    const weft_cuda_gpu *gpu;
    if (weft_cuda_gpu_get(&gpu) != WEFT_OK || !weft_cuda_stream_begin(stream, "a graph"))
        return;
    const cuda_result result =
        gpu->driver->graph_launch(graph->exec, weft_cuda_stream_handle(stream));
    if (result != CUDA_OK)
        weft_cuda_stream_fail(stream, weft_cuda_gpu_error(gpu, result, "the launch of a graph"));
}

static void free_graph(weft_device_graph *graph)
{
    const weft_cuda_gpu *gpu;
    if (graph && weft_cuda_gpu_get(&gpu) == WEFT_OK)
        gpu->driver->graph_exec_destroy(graph->exec);
    weft_free(graph);
}

const weft_device_graphs weft_cuda_graphs = {
    .begin = begin, .end = end, .launch = launch, .free = free_graph};
