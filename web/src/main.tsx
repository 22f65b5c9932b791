// The entry: styles, state, the first render.
import "uplot/dist/uPlot.min.css";
import "./style/main.css";
import { render } from "preact";
import { startEvidence } from "./state/evidence";
import { startFeed } from "./state/feed";
import { startLists } from "./state/lists";
import { startLive } from "./state/live";
import { startLog } from "./state/log";
import { startRequests } from "./state/requests";
import { startServer } from "./state/server";
import { App } from "./views/App";

startServer();
startLog();
startLive();
startFeed();
startRequests();
startLists();
startEvidence();

const root = document.getElementById("app");
if (root) render(<App />, root);
