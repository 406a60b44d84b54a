#include "doctor/int8_product.h"

#include "base/log.h"
#include "base/memory.h"

#include <dnnl.h>
#include <math.h>
#include <string.h>

enum { SIDE = 1024, OPERANDS = 3 };

typedef struct product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[OPERANDS];
    void *data[OPERANDS];
} product;

static weft_status check(dnnl_status_t status)
{
    return status == dnnl_success
               ? WEFT_OK
               : weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.value = "int8"),
                            "oneDNN cannot compute a product of int8 matrices (status %d)",
                            (int)status);
}

static weft_status create(product *p)
{
    static const dnnl_data_type_t type[OPERANDS] = {dnnl_u8, dnnl_s8, dnnl_s32};
    const dnnl_dims_t dims = {SIDE, SIDE};
    dnnl_memory_desc_t side[OPERANDS];
    dnnl_matmul_desc_t matmul;
    for (int i = 0; i < OPERANDS; i++)
        WEFT_TRY(check(dnnl_memory_desc_init_by_tag(&side[i], 2, dims, type[i],
                                                    i == 1 ? dnnl_format_tag_any : dnnl_ab)));
    WEFT_TRY(check(dnnl_engine_create(&p->engine, dnnl_cpu, 0)));
    WEFT_TRY(check(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags)));
    WEFT_TRY(check(dnnl_matmul_desc_init(&matmul, &side[0], &side[1], NULL, &side[2])));
    WEFT_TRY(check(dnnl_primitive_desc_create(&p->desc, &matmul, NULL, p->engine, NULL)));
    WEFT_TRY(check(dnnl_primitive_create(&p->primitive, p->desc)));
    /* the weights have the layout that the primitive prefers, like weights that are packed once */
    side[1] = *dnnl_primitive_desc_query_md(p->desc, dnnl_query_weights_md, 0);
    for (int i = 0; i < OPERANDS; i++) {
        const int64_t bytes = (int64_t)dnnl_memory_desc_get_size(&side[i]);
        p->data[i] = weft_alloc_aligned(bytes);
        WEFT_TRY(WEFT_ALLOCATED(p->data[i], "the measurement"));
        memset(p->data[i], i + 1, (size_t)bytes);
        WEFT_TRY(check(dnnl_memory_create(&p->memory[i], &side[i], p->engine, p->data[i])));
    }
    return WEFT_OK;
}

static void destroy(product *p)
{
    for (int i = 0; i < OPERANDS; i++) {
        if (p->memory[i])
            dnnl_memory_destroy(p->memory[i]);
        weft_free(p->data[i]);
    }
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    if (p->desc)
        dnnl_primitive_desc_destroy(p->desc);
    if (p->stream)
        dnnl_stream_destroy(p->stream);
    if (p->engine)
        dnnl_engine_destroy(p->engine);
}

weft_status weft_doctor_int8_product(double seconds, double *gops)
{
    const double ops = 2e-9 * SIDE * SIDE * SIDE;
    double spent = 0;
    product p = {0};
    weft_status_code status = WEFT_OK;
    *gops = 0;
    WEFT_GO(create(&p));
    const dnnl_exec_arg_t args[OPERANDS] = {
        {DNNL_ARG_SRC, p.memory[0]}, {DNNL_ARG_WEIGHTS, p.memory[1]}, {DNNL_ARG_DST, p.memory[2]}};
    for (int i = 0; i < 2 || spent < seconds; i++) {
        const double started = weft_now();
        WEFT_GO(check(dnnl_primitive_execute(p.primitive, p.stream, OPERANDS, args)));
        WEFT_GO(check(dnnl_stream_wait(p.stream)));
        const double took = weft_now() - started;
        spent += took;
        *gops = fmax(*gops, ops / took);
    }
out:
    destroy(&p);
    return status;
}
