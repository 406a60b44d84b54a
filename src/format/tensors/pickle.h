/* Inside format/: the pickles of torch.save, as data.
 *
 * A pickle is a program for a stack machine. This reader implements the instructions that create
 * numbers, texts, lists, tuples and dicts. It accepts only the functions that describe a tensor
 * (torch._utils._rebuild_tensor_v2 and variants, OrderedDict) and treats them as data. Any other
 * name is an error. No code is executed. */
#ifndef WEFT_FORMAT_TENSORS_PICKLE_H
#define WEFT_FORMAT_TENSORS_PICKLE_H

#include "format/tensors/tensors.h"

typedef enum weft_pickled_kind {
    WEFT_PICKLED_NOTHING, /* None, booleans, real numbers */
    WEFT_PICKLED_NUMBER,
    WEFT_PICKLED_TEXT,
    WEFT_PICKLED_LIST, /* tuples, too */
    WEFT_PICKLED_DICT, /* item: key, value, key, value ... */
    WEFT_PICKLED_NAME, /* an accepted function or class */
    WEFT_PICKLED_STORAGE,
    WEFT_PICKLED_TENSOR, /* a view of a storage */
} weft_pickled_kind;

typedef struct weft_pickled weft_pickled;
struct weft_pickled {
    weft_pickled_kind kind;
    int64_t number;   /* tensor: the offset in its storage, in elements */
    const char *text; /* storage: its key; name: "module name" */
    weft_pickled **item;
    int64_t count, capacity;
    /* storages and their tensors */
    weft_dtype dtype;
    const weft_packing *packing; /* packing, see weft_stored_tensor */
    bool typed;                  /* false: bytes; the tensor has the type */
    weft_pickled *storage;
    weft_pickled *size, *stride; /* lists of numbers */
};

/* Reads one pickle at *at and moves *at past its end. All values live in `arena`. `storages`: a
 * list to which every mention of a storage is appended in order. NULL: no list. */
weft_status weft_pickle_parse(const char *path, const unsigned char **at, const unsigned char *end,
                              weft_arena *arena, weft_pickled *storages, weft_pickled **value);

#endif
