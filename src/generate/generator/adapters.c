#include "generate/generator/adapters.h"

#include "base/memory.h"
#include "exec/store/tensor_copy.h"

#include <string.h>

static weft_status merge_param(const weft_adapter_use *use, int count, weft_tensor *t)
{
    const int64_t bytes = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
    weft_adapter_box box = {
        .param = t->name, .dtype = t->dtype, .whole = t->whole, .shape = t->shape, .data = t->data};
    const void *data;
    void *made;
    bool changed;
    memcpy(box.start, t->start, sizeof box.start);
    WEFT_TRY(weft_tensor_on_host(t, &data, &made));
    if (made)
        box.data = made;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_adapters_merge(use, count, &box, &changed));
    if (made && changed)
        WEFT_GO(weft_tensor_put_bytes(t, 0, bytes, made));
out:
    weft_free(made);
    return status;
}

static bool is_for(const weft_adapter_choice *choice, int expert)
{
    return choice->expert < 0 || choice->expert == expert;
}

weft_status weft_adapters_check(const weft_adapter_choice *choice, int count, int expert,
                                const weft_family *family, const weft_graph *whole,
                                const char *prefix)
{
    weft_adapter_use *use;
    int uses;
    WEFT_TRY(weft_adapters_open(choice, count, expert, family, whole, prefix, &use, &uses));
    weft_adapters_close(use, uses);
    return WEFT_OK;
}

weft_status weft_adapters_open(const weft_adapter_choice *choice, int count, int expert,
                               const weft_family *family, const weft_graph *whole,
                               const char *prefix, weft_adapter_use **use, int *uses)
{
    weft_adapter_use *all = weft_calloc(count + 1, sizeof *all);
    weft_status_code status = WEFT_OK;
    int opened = 0;
    WEFT_GO(WEFT_ALLOCATED(all, "%d adapters", count));
    for (int i = 0; i < count; i++) {
        weft_adapter *adapter;
        if (!is_for(&choice[i], expert))
            continue;
        WEFT_GO(weft_adapter_open(family, whole, prefix, choice[i].path, &adapter));
        all[opened++] = (weft_adapter_use){adapter, choice[i].weight};
    }
out:
    if (status != WEFT_OK || opened == 0) {
        weft_adapters_close(all, opened);
        all = NULL;
    }
    *use = all;
    *uses = opened;
    return status;
}

void weft_adapters_close(weft_adapter_use *use, int uses)
{
    for (int i = 0; i < uses && use; i++)
        weft_adapter_close((weft_adapter *)(uintptr_t)use[i].adapter);
    weft_free(use);
}

weft_status weft_adapters_load(const weft_adapter_choice *choice, int count, int expert,
                               const weft_family *family, const weft_graph *whole,
                               const weft_graph *own, const char *prefix, weft_store *store)
{
    weft_adapter_use *use;
    int uses;
    WEFT_TRY(weft_adapters_open(choice, count, expert, family, whole, prefix, &use, &uses));
    weft_status_code status = WEFT_OK;
    for (int32_t n = 0; n < weft_graph_node_count(own) && use; n++) {
        const weft_node *node = weft_graph_node(own, n);
        const char *name =
            node->op == WEFT_OP_PARAM ? weft_value_get(own, node->out[0])->name : NULL;
        weft_tensor *t =
            name && !strncmp(name, prefix, strlen(prefix)) ? weft_store_find(store, name) : NULL;
        if (t)
            WEFT_GO(merge_param(use, uses, t));
    }
out:
    weft_adapters_close(use, uses);
    return status;
}
