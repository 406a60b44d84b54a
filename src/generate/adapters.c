#include "generate/adapters.h"

#include "base/memory.h"
#include "model/adapter.h"

#include <string.h>

static weft_status merge_param(const weft_adapter_use *use, int count, weft_tensor *t)
{
    weft_adapter_box box = {
        .param = t->name, .dtype = t->dtype, .whole = t->whole, .shape = t->shape, .data = t->data};
    memcpy(box.start, t->start, sizeof box.start);
    return weft_adapters_merge(use, count, &box, NULL);
}

static bool is_for(const weft_adapter_choice *choice, int expert)
{
    return choice->expert < 0 || choice->expert == expert;
}

weft_status weft_adapters_check(const weft_adapter_choice *choice, int count, int expert,
                                const weft_family *family, const weft_graph *whole,
                                const char *prefix)
{
    for (int i = 0; i < count; i++) {
        weft_adapter *adapter;
        if (!is_for(&choice[i], expert))
            continue;
        WEFT_TRY(weft_adapter_open(family, whole, prefix, choice[i].path, &adapter));
        weft_adapter_close(adapter);
    }
    return WEFT_OK;
}

weft_status weft_adapters_load(const weft_adapter_choice *choice, int count, int expert,
                               const weft_family *family, const weft_graph *whole,
                               const weft_graph *own, const char *prefix, weft_store *store)
{
    if (count == 0)
        return WEFT_OK;
    weft_adapter **opened = weft_alloc(count * (int64_t)sizeof *opened);
    weft_adapter_use *use = weft_alloc(count * (int64_t)sizeof *use);
    weft_status_code status = WEFT_OK;
    int uses = 0;
    if (!opened || !use)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for %d adapters", count));
    for (int i = 0; i < count; i++) {
        if (!is_for(&choice[i], expert))
            continue;
        WEFT_GO(weft_adapter_open(family, whole, prefix, choice[i].path, &opened[i]));
        use[uses++] = (weft_adapter_use){opened[i], choice[i].weight};
    }
    for (int32_t n = 0; n < weft_graph_node_count(own) && uses; n++) {
        const weft_node *node = weft_graph_node(own, n);
        const char *name =
            node->op == WEFT_OP_PARAM ? weft_value_get(own, node->out[0])->name : NULL;
        weft_tensor *t =
            name && !strncmp(name, prefix, strlen(prefix)) ? weft_store_find(store, name) : NULL;
        if (t)
            WEFT_GO(merge_param(use, uses, t));
    }
out:
    for (int i = 0; opened && i < count; i++)
        weft_adapter_close(opened[i]);
    weft_free(opened);
    weft_free(use);
    return status;
}
