#include "../training_graph.c" /* one small model for the tests of all passes */
