/* The functions of weft/program.h that src/comm and src/exec do not have. */
#include "weft/program.h"

#include "api/sized.h"
#include "base/convert.h"
#include "comm/comm_fake.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/group.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "exec/program_internal.h"
#include "exec/store/tensor_copy.h"
#include "exec/store/weights.h"
#include "exec/trace/run_trace.h"
#include "exec/trace/timeline_file.h"
#include "graph/infer.h"
#include "kernel/registry/backend.h"

#include <stdio.h>
#include <string.h>

/* ---- tensors --------------------------------------------------------------------------------- */

weft_status_code weft_tensor_describe(const weft_tensor *tensor,
                                      weft_tensor_description *description)
{
    const weft_tensor_description filled = {.name = tensor->name,
                                            .dtype = tensor->dtype,
                                            .shape = tensor->shape,
                                            .whole = tensor->whole};
    return WEFT_SIZED_WRITE(description, filled);
}

void *weft_tensor_data(weft_tensor *tensor)
{
    return tensor->staging ? NULL : tensor->data;
}

static weft_status check_values(const weft_tensor *tensor, int64_t count)
{
    const int64_t elements = weft_shape_count(&tensor->shape);
    if (count != elements)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.key = tensor->name, WEFT_NUMBER(count)),
                          "%" PRId64 " values for a tensor of %" PRId64 " elements", count,
                          elements);
    if (!tensor->data)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = tensor->name),
                          "the tensor has no memory yet; bind the program first");
    if (!weft_dtype_is_float(tensor->dtype))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.key = tensor->name),
                          "the tensor has the type %s; use weft_tensor_data",
                          weft_dtype_name(tensor->dtype));
    return WEFT_OK;
}

weft_status_code weft_tensor_put_f32(weft_tensor *tensor, const float *values, int64_t count)
{
    WEFT_TRY(check_values(tensor, count));
    const weft_box box = weft_box_of(tensor);
    return weft_tensor_put(tensor, &box, values, WEFT_F32, NULL);
}

weft_status_code weft_tensor_get_f32(const weft_tensor *tensor, float *values, int64_t count)
{
    WEFT_TRY(check_values(tensor, count));
    const weft_box box = weft_box_of(tensor);
    return weft_tensor_get(tensor, &box, values, WEFT_F32, NULL);
}

/* ---- weights --------------------------------------------------------------------------------- */

weft_status_code weft_store_load(weft_store *store, const weft_graph *graph, const char *path,
                                 const weft_weights_options *options)
{
    weft_weights_options own;
    weft_tensors *file;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    WEFT_TRY(weft_tensors_open(path, &file));
    return weft_weights_load(store, graph, own.prefix ? own.prefix : "", file, own.partial != 0);
}

weft_status_code weft_store_save(weft_store *store, weft_comm *comm, const weft_graph *graph,
                                 const char *folder, const weft_weights_options *options)
{
    weft_weights_options own;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    return weft_weights_save(store, comm, graph, own.prefix ? own.prefix : "", folder,
                             own.stem ? own.stem : "model", own.dtype, own.max_file_bytes);
}

/* ---- programs -------------------------------------------------------------------------------- */

static weft_status unknown_backend(const char *name)
{
    char names[512] = "";
    for (int i = 0; weft_backend_at(i); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                 weft_backend_at(i)->name);
    }
    return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "backend", .value = name),
                      "no backend has the name \"%s\"; use one of %s", name, names);
}

weft_status_code weft_program_create(const weft_graph *graph, const weft_compile_options *options,
                                     weft_program **program)
{
    weft_compile_options own;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    const weft_backend *backend = weft_backend_find(own.backend ? own.backend : "cpu");
    if (!backend)
        return unknown_backend(own.backend);
    WEFT_TRY(weft_backend_check(backend));
    WEFT_TRY(weft_graph_check(graph));
    return weft_program_compile(
        graph,
        &(weft_program_options){
            .backend = backend, .threads = own.threads, .profile = own.profile, .guard = own.guard},
        program);
}

static weft_status check_port(const weft_program *program, const weft_tensor *tensor,
                              const char *kind, const char *name)
{
    if (!tensor)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = name),
                          "the program has no %s \"%s\"", kind, name);
    if (!program->binding.bound)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = name),
                          "the %s has no memory: the program is not bound", kind);
    return WEFT_OK;
}

weft_status_code weft_program_put(weft_program *program, const char *name, const float *values,
                                  int64_t count)
{
    weft_tensor *tensor = weft_program_input(program, name);
    WEFT_TRY(check_port(program, tensor, "input", name));
    return weft_tensor_put_f32(tensor, values, count);
}

weft_status_code weft_program_get(const weft_program *program, const char *name, float *values,
                                  int64_t count)
{
    /* the lookup changes nothing */
    const weft_tensor *tensor = weft_program_output((weft_program *)program, name);
    WEFT_TRY(check_port(program, tensor, "output", name));
    return weft_tensor_get_f32(tensor, values, count);
}

weft_status_code weft_program_write_timeline(const weft_program *program, const char *path)
{
    const weft_group *group = program->binding.base;
    const weft_comm *comm = group ? weft_group_comm(group) : NULL;
    weft_timeline timeline =
        weft_timeline_open(comm ? weft_comm_rank(comm) : 0, comm ? weft_comm_ranks(comm) : 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_timeline_add_program(&timeline, program));
    WEFT_GO(weft_timeline_write(&timeline, path));
out:
    weft_timeline_free(&timeline);
    return status;
}
