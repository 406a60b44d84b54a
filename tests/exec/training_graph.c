#include "../transform/training_graph.c" /* the same small model as the tests of the passes */
