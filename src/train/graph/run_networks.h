/* The networks of a step in addition to the trained model: copies of its architecture in scopes of
 * their own (transform/numeric/networks.h). */
#ifndef WEFT_TRAIN_GRAPH_RUN_NETWORKS_H
#define WEFT_TRAIN_GRAPH_RUN_NETWORKS_H

#include "train/graph/objective.h"

/* Distillation: the teacher, its call with the empty caption, and the fake score's call without
 * gradient. WEFT_TARGET_SCOPE and WEFT_FAKE_SCOPE are in optimizer_config.h. */
#define WEFT_TEACHER_SCOPE    "teacher"
#define WEFT_UNGUIDED_SCOPE   "teacher_empty"
#define WEFT_FAKE_SCORE_SCOPE "fake_score"
/* Self-forcing: further calls of the trained model, "rollout0", "rollout1", ... */
#define WEFT_ROLLOUT_SCOPE "rollout"
/* Preferences: the trained model's call with rejected clips, and the calls of the model before the
 * training. */
#define WEFT_REJECTED_SCOPE           "rejected"
#define WEFT_REFERENCE_SCOPE          "reference"
#define WEFT_REFERENCE_REJECTED_SCOPE "reference_rejected"

enum { WEFT_RUN_NETWORKS = 2 };
/* Writes the scopes of the networks with parameters of their own into scope[] and returns their
 * number. */
int weft_run_networks(const weft_run *run, const char *scope[WEFT_RUN_NETWORKS]);
/* The architecture of the network in `scope`, and the folder with whose weights it starts: of the
 * trained model, of distill.teacher or of distill.fake_weights. */
const weft_model *weft_run_network_model(const weft_run_models *models, const char *scope);
const char *weft_run_network_weights(const weft_run *run, const char *scope);
/* The networks that steps change. With LoRA, their matrices. */
int weft_run_networks_changed(const weft_run *run, const char *scope[WEFT_RUN_NETWORKS]);

/* Resolve the parameters of the networks around the run's trainable parameters (trainable.h):
 * networks that follow the trained model before its matrices are added, and frozen networks after.
 * Replace and free *g. */
weft_status weft_run_networks_share_trained(const weft_run *run, const weft_run_models *models,
                                            weft_graph **g);
weft_status weft_run_networks_share_frozen(const weft_run *run, const weft_run_models *models,
                                           weft_graph **g);

#endif
