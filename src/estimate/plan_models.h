/* Models for the planners, by name or path: model -> graph -> operator list. Published models of
 * families that weft does not implement use the lists in plan/published/. */
#ifndef WEFT_ESTIMATE_PLAN_MODELS_H
#define WEFT_ESTIMATE_PLAN_MODELS_H

#include "graph/graph.h"
#include "plan/cascade/workload.h"

/* Creates the training graph of one sample: forward, loss, gradients, AdamW. `model` is a model
 * folder, a config.json, or a published Wan. Frames, height and width are in pixels, rounded up to
 * complete patches. The caller frees the graph. */
weft_status weft_plan_model_graph(const char *model, int64_t frames, int64_t height, int64_t width,
                                  weft_graph **out);

/* Adds the output "model_loss": the mean square of the last output. It replaces the real loss,
 * whose cost is small compared with the model. */
void weft_add_square_loss(weft_graph *g);

/* Operators of a model for one clip. *source: "graph" or "hand-made list". The error for an unknown
 * name lists the known names. */
weft_status weft_plan_model_list(weft_arena *arena, const char *model, int64_t frames,
                                 int64_t height, int64_t width, const weft_device_type *device,
                                 weft_op_list *out, const char **source);

/* All data of a video model that cascades of these samples need. */
weft_status weft_plan_model_work(weft_arena *arena, const char *model, const weft_workload *samples,
                                 const weft_device_type *device, weft_model_work *out);

#endif
