#ifndef WEFT_COMM_COLL_ALGORITHMS_H
#define WEFT_COMM_COLL_ALGORITHMS_H

#include "comm/coll_schedule.h"
#include "plan/cluster/cluster.h"

extern const weft_link_costs weft_link_costs_default;
/* Returns the costs of the cluster's links and of sums on its devices. The NICs of a node together
 * are its link to other nodes. */
weft_link_costs weft_link_costs_of(const weft_cluster *cluster);
/* Predicts the seconds of a collective of `bytes`. all_reduce, broadcast and send: bytes of the
 * tensor. Others: total bytes of all members' parts. */
weft_status weft_algorithm_cost(weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                                int64_t bytes, const weft_link_costs *costs, double *seconds);
/* Predicts the seconds of a collective in segments of `segment` bytes, in sequence. */
weft_status weft_algorithm_cost_cut(weft_algorithm algorithm, weft_comm_op op,
                                    const weft_span *span, int64_t bytes, int64_t segment,
                                    const weft_link_costs *costs, double *seconds);
/* Chooses the cheapest algorithm that fits, and among equals the first of the enum. The result is
 * equal on all ranks. *seconds: its cost. `seconds` NULL: not computed, and no costs are compared
 * if only one algorithm fits. */
weft_status weft_algorithm_choose(weft_comm_op op, const weft_span *span, int64_t bytes,
                                  bool is_16bit, const weft_link_costs *costs,
                                  weft_algorithm *algorithm, double *seconds);
/* Writes for each collective the chosen algorithm and its cost by size, and the sizes at which the
 * choice changes. */
weft_status weft_algorithm_table(const weft_span *span, const weft_link_costs *costs,
                                 weft_buf *text);

#endif
