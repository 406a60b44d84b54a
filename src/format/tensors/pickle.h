/* Inside format/: the pickles of torch.save, as data.
 *
 * A pickle is a program for a stack machine. Of its instructions those are carried out that make
 * numbers, texts, lists, tuples and dicts, and of the functions that it may call only those that
 * describe a tensor (torch._utils._rebuild_tensor_v2 and its kin, OrderedDict); each is data here.
 * Any other name is an error: nothing is ever executed. */
#ifndef WEFT_FORMAT_PICKLE_H
#define WEFT_FORMAT_PICKLE_H

#include "format/tensors.h"

typedef enum weft_pickled_kind {
    WEFT_PICKLED_NOTHING, /* None, booleans, real numbers */
    WEFT_PICKLED_NUMBER,
    WEFT_PICKLED_TEXT,
    WEFT_PICKLED_LIST, /* tuples, too */
    WEFT_PICKLED_DICT, /* item: key, value, key, value ... */
    WEFT_PICKLED_NAME, /* of a function or class that may be called or named */
    WEFT_PICKLED_STORAGE,
    WEFT_PICKLED_TENSOR, /* a view of a storage */
} weft_pickled_kind;

typedef struct weft_pickled weft_pickled;
struct weft_pickled {
    weft_pickled_kind kind;
    int64_t number;   /* of a tensor: the offset in its storage, in elements */
    const char *text; /* of a storage: its key; of a name: "module name" */
    weft_pickled **item;
    int64_t count, capacity;
    /* storages, and tensors of it */
    weft_dtype dtype;
    const weft_packing *packing; /* as in weft_stored_tensor */
    bool typed;                  /* false: bytes, whose type the tensor says */
    weft_pickled *storage;
    weft_pickled *size, *stride; /* lists of numbers */
};

/* Reads one pickle from *at on, which is left behind it. All values live in `arena`. `storages`: a
 * list that its storages are added to, in their order and as often as they are named; NULL: none
 * is kept. */
weft_status weft_pickle_parse(const char *path, const unsigned char **at, const unsigned char *end,
                              weft_arena *arena, weft_pickled *storages, weft_pickled **value);

#endif
