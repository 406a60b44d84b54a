#ifndef WEFT_TRAIN_PIPELINE_PP_STORE_H
#define WEFT_TRAIN_PIPELINE_PP_STORE_H

#include "base/memory.h"
#include "comm/comm.h"
#include "graph/op.h"
#include "train/pipeline/pp_layout.h"

/* Adds the parameters and states of `graphs` to the store, and empty tensors for other pipeline
 * stages' parameters and states. Every rank's store then has the same names in the same order. If
 * several stages have a tensor, the first one's rank writes it. Collective over the stages. `comm`
 * NULL: adds only this rank's tensors. */
weft_status weft_pp_store_fill(const weft_pp_layout *pp, const weft_graph *const *graphs, int count,
                               weft_comm *comm, weft_store *store, uint64_t seed);
/* Lists the parameters and states of a device's graphs as text, to plan for ranks that do not
 * run. */
weft_status weft_pp_params_list(const weft_graph *const *graphs, int count, weft_buf *list);
/* Does the same as weft_pp_store_fill, from the lists of all devices. */
weft_status weft_pp_store_fill_listed(const weft_pp_layout *pp, const weft_graph *const *graphs,
                                      int count, const weft_buf *lists, weft_store *store,
                                      uint64_t seed);

#endif
