#!/bin/sh
# Nearest neighbours in awk: any program that reads row numbers and writes scores will do.
#
# cd examples/training
# engram run membership records=200 models=16 training.command='sh shell.sh {rows:txt} {out}'
awk '
BEGIN {
    srand(1)
    for (record = 0; record < 200; record++) value[record] = rand()  # the data
}
{ trained[$1] }  # one row number per line
END {
    print "row,loss"
    for (record = 0; record < 200; record++) {
        nearest = 1
        for (other in trained) {
            distance = (value[record] - value[other]) ^ 2
            if (distance < nearest) nearest = distance
        }
        printf "%d,%.9g\n", record, nearest
    }
}' "$1" > "$2/scores.csv"
