#include "kernel/view.h"

double view_get(const weft_view *v, int64_t i)
{
    switch (v->dtype) {
    case WEFT_F64: return ((const double *)v->data)[i];
    case WEFT_F32: return ((const float *)v->data)[i];
    case WEFT_BF16: return weft_bf16_to_f32(((const uint16_t *)v->data)[i]);
    case WEFT_F16: return weft_f16_to_f32(((const uint16_t *)v->data)[i]);
    case WEFT_F8E4M3: return weft_f8e4m3_to_f32(((const uint8_t *)v->data)[i]);
    case WEFT_I32: return ((const int32_t *)v->data)[i];
    case WEFT_I64: return (double)((const int64_t *)v->data)[i];
    case WEFT_U8: return ((const uint8_t *)v->data)[i];
    default: return 0;
    }
}

int64_t view_get_int(const weft_view *v, int64_t i)
{
    switch (v->dtype) {
    case WEFT_I32: return ((const int32_t *)v->data)[i];
    case WEFT_I64: return ((const int64_t *)v->data)[i];
    case WEFT_U8: return ((const uint8_t *)v->data)[i];
    default: return (int64_t)view_get(v, i);
    }
}

void view_set(const weft_view *v, int64_t i, double value)
{
    switch (v->dtype) {
    case WEFT_F64: ((double *)v->data)[i] = value; break;
    case WEFT_F32: ((float *)v->data)[i] = (float)value; break;
    case WEFT_BF16: ((uint16_t *)v->data)[i] = weft_f32_to_bf16((float)value); break;
    case WEFT_F16: ((uint16_t *)v->data)[i] = weft_f32_to_f16((float)value); break;
    case WEFT_F8E4M3: ((uint8_t *)v->data)[i] = weft_f32_to_f8e4m3((float)value); break;
    case WEFT_I32: ((int32_t *)v->data)[i] = (int32_t)value; break;
    case WEFT_I64: ((int64_t *)v->data)[i] = (int64_t)value; break;
    case WEFT_U8: ((uint8_t *)v->data)[i] = (uint8_t)value; break;
    default: break;
    }
}

void view_set_int(const weft_view *v, int64_t i, int64_t value)
{
    switch (v->dtype) {
    case WEFT_I32: ((int32_t *)v->data)[i] = (int32_t)value; break;
    case WEFT_I64: ((int64_t *)v->data)[i] = value; break;
    case WEFT_U8: ((uint8_t *)v->data)[i] = (uint8_t)value; break;
    default: view_set(v, i, (double)value);
    }
}

weft_status_code embed_check_ids(const weft_view *ids, int64_t rows)
{
    const int64_t count = view_count(ids);
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = view_get_int(ids, i);
        if (id < 0 || id >= rows)
            return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(id)),
                              "embed: id %" PRId64 " at position %" PRId64
                              " is outside the table of %" PRId64 " rows",
                              id, i, rows);
    }
    return WEFT_OK;
}

weft_status_code experts_check_ids(const weft_view *ids, int64_t experts)
{
    const int64_t count = view_count(ids);
    for (int64_t i = 0; i < count; i++)
        if (view_get_int(ids, i) >= experts)
            return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(view_get_int(ids, i))),
                              "expert %" PRId64 " at position %" PRId64 " is not below %" PRId64,
                              view_get_int(ids, i), i, experts);
    return WEFT_OK;
}
