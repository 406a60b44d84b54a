/* Elements of tensors of any type as f32, included by simt.h. All threads of a launch have one
 * type, so the branch costs little compared with the access to memory. A kernel exists once. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_SIMT_TENSOR_H
#define WEFT_KERNEL_CUDA_KERNELS_SIMT_TENSOR_H

DEV float load_float(tensor_ref t, int64_t i)
{
    switch (t.type) {
    case TYPE_F32: return ((const float *)t.data)[i];
    case TYPE_BF16: return bf16_value(((const uint16_t *)t.data)[i]);
    case TYPE_F16: return f16_value(((const uint16_t *)t.data)[i]);
    case TYPE_F8: return f8_value(((const uint8_t *)t.data)[i]);
    case TYPE_I32: return (float)((const int32_t *)t.data)[i];
    case TYPE_I64: return (float)((const int64_t *)t.data)[i];
    default: return (float)((const uint8_t *)t.data)[i];
    }
}

DEV void store_float(tensor_ref t, int64_t i, float x)
{
    switch (t.type) {
    case TYPE_F32: ((float *)t.data)[i] = x; break;
    case TYPE_BF16: ((uint16_t *)t.data)[i] = (uint16_t)bf16_of(x); break;
    case TYPE_F16: ((uint16_t *)t.data)[i] = (uint16_t)f16_of(x); break;
    case TYPE_F8: ((uint8_t *)t.data)[i] = (uint8_t)f8_of(x); break;
    case TYPE_I32: ((int32_t *)t.data)[i] = (int32_t)x; break;
    case TYPE_I64: ((int64_t *)t.data)[i] = (int64_t)x; break;
    default: ((uint8_t *)t.data)[i] = (uint8_t)x; break;
    }
}

/* Eight elements from i, a multiple of 8: accesses of 16 bytes. Only for f32, bf16 and f16. */
DEV void load_eight(float v[8], tensor_ref t, int64_t i)
{
    if (t.type == TYPE_F32) {
        const quad lo = load_quad((const float *)t.data + i),
                   hi = load_quad((const float *)t.data + i + 4);
        UNROLL
        for (int k = 0; k < 4; k++) {
            v[k] = bits_float(lo.x[k]);
            v[4 + k] = bits_float(hi.x[k]);
        }
        return;
    }
    const quad q = load_quad((const uint16_t *)t.data + i);
    if (t.type == TYPE_BF16) {
        UNROLL
        for (int k = 0; k < 4; k++) {
            v[2 * k] = bits_float(q.x[k] << 16);
            v[2 * k + 1] = bits_float(q.x[k] & 0xffff0000u);
        }
        return;
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        v[2 * k] = f16_value(q.x[k] & 0xffffu);
        v[2 * k + 1] = f16_value(q.x[k] >> 16);
    }
}

DEV void store_eight(tensor_ref t, int64_t i, const float v[8])
{
    quad lo, hi;
    if (t.type == TYPE_F32) {
        UNROLL
        for (int k = 0; k < 4; k++) {
            lo.x[k] = float_bits(v[k]);
            hi.x[k] = float_bits(v[4 + k]);
        }
        store_quad((float *)t.data + i, lo);
        store_quad((float *)t.data + i + 4, hi);
        return;
    }
    UNROLL
    for (int k = 0; k < 4; k++)
        lo.x[k] = t.type == TYPE_BF16 ? bf16_of(v[2 * k]) | bf16_of(v[2 * k + 1]) << 16
                                      : f16_of(v[2 * k]) | f16_of(v[2 * k + 1]) << 16;
    store_quad((uint16_t *)t.data + i, lo);
}

DEV void copy_eight(tensor_ref to, int64_t to_i, tensor_ref from, int64_t from_i)
{
    float v[8];
    load_eight(v, from, from_i);
    store_eight(to, to_i, v);
}

DEV int64_t load_int(tensor_ref t, int64_t i)
{
    switch (t.type) {
    case TYPE_I32: return ((const int32_t *)t.data)[i];
    case TYPE_I64: return ((const int64_t *)t.data)[i];
    default: return ((const uint8_t *)t.data)[i];
    }
}

/* Reports an id to the host. Of several, any one is kept. */
DEV void report_id(id_report to, int64_t id)
{
    if (to.bad_id)
        *to.bad_id =
            (uint64_t)to.op << BAD_ID_OP | ((uint64_t)id & (((uint64_t)1 << BAD_ID_OP) - 1));
}

/* Offset of flat index i of a shape in a tensor with other strides. */
DEV int64_t loop_offset(const loop_shape *shape, const int64_t *stride, uint32_t i)
{
    int64_t offset = 0;
    UNROLL
    for (int d = LOOP_RANK - 1; d > 0; d--) {
        const uint32_t next = divide(i, shape->dim[d]);
        offset += (int64_t)(i - next * shape->dim[d].by) * stride[d];
        i = next;
    }
    return offset + (int64_t)i * stride[0];
}

/* Eight elements of an input that may be one element eight times. */
DEV void load_item(float v[8], tensor_ref t, int64_t offset, int same)
{
    if (!same) {
        load_eight(v, t, offset);
        return;
    }
    const float x = load_float(t, offset);
    UNROLL
    for (int k = 0; k < 8; k++)
        v[k] = x;
}

#endif
