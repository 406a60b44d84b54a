#ifndef WEFT_COMM_COLL_TUNER_H
#define WEFT_COMM_COLL_TUNER_H

#include "base/memory.h"
#include "comm/coll_tuning.h"
#include "comm/comm.h"

/* Algorithms are chosen by the rows of `tuning` where one applies, otherwise by cost. Takes the
 * content of `tuning` and leaves it empty. Must be equal on all ranks. */
void weft_comm_set_tuning(weft_comm *comm, weft_coll_tuning *tuning);
/* Collective: weft_comm_set_tuning with the file named by WEFT_COLLECTIVES on rank 0, if set. */
weft_status weft_comm_set_tuning_file(weft_comm *comm);

/* Collective: times every algorithm of every collective by size, among all ranks. `tuning` gets the
 * fastest ones; the size at which one overtakes another is found by bisection. `text` compares
 * measured times with predictions from `costs` (of weft_comm_measure) and from the default
 * costs. */
weft_status weft_comm_measure_choices(weft_comm *comm, const weft_link_costs *costs,
                                      weft_coll_tuning *tuning, weft_buf *text);

#endif
