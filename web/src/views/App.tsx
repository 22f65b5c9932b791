// The whole page: the header, the thin bar, the view that the address names; dimmed while the connection is lost.
import { useEffect } from "preact/hooks";
import { refused } from "../state/access";
import { findModels, models } from "../state/chat";
import { connection } from "../state/live";
import { route } from "../state/location";
import { engines, isLive, logSpan, summary } from "../state/log";
import { numWaiting } from "../state/resource";
import { health, isAlone } from "../state/server";
import { BenefitPage } from "./Benefit";
import { Problem } from "./bits";
import { ChatView } from "./Chat";
import { ConversationView } from "./Conversation";
import { ConversationsView } from "./Conversations";
import { EmptyLog, EmptyTraffic } from "./Empty";
import { EnginesView } from "./Engines";
import { Feed } from "./Feed";
import { Header } from "./Header";
import { KeyForm } from "./KeyForm";
import { MissesView } from "./Misses";
import { PolicyView } from "./Policy";
import { RequestView } from "./RequestPage";
import { RecentRequests, RequestsView } from "./Requests";
import { Sentence } from "./Sentence";
import { Strips } from "./Strips";
import { SwitchPanel } from "./Switch";
import { TierPanel } from "./Tier";
import { TierView } from "./TierMap";
import { WhatIfView } from "./WhatIf";

const TITLES = {
  now: "overview",
  misses: "why it missed",
  benefit: "benefit",
  whatif: "what-if",
  tier: "CPU tier",
  conversations: "conversations",
  conversation: "conversation",
  requests: "requests",
  request: "request",
  policy: "policy",
  engines: "engines",
  chat: "chat",
};

export function App() {
  const { view } = route.value;
  useEffect(() => {
    document.title = `${TITLES[view]} – vllm-restore`;
  }, [view]);
  return (
    <>
      <button type="button" class="skip" onClick={skip}>
        skip to content
      </button>
      <div
        class={`bar ${numWaiting.value > 0 ? "busy" : ""}`}
        role="progressbar"
        aria-label="Loading"
        hidden={numWaiting.value === 0}
      />
      <Header />
      <div class={connection.value === "lost" ? "stale" : ""}>
        {refused.value === null ? <CurrentView /> : <KeyForm />}
      </div>
    </>
  );
}

/** The hash holds the view, so a plain fragment link would leave it. */
function skip(): void {
  const main = document.getElementById("main");
  main?.setAttribute("tabindex", "-1");
  main?.focus();
}

function CurrentView() {
  switch (route.value.view) {
    case "misses":
      return <MissesView />;
    case "benefit":
      return <BenefitPage />;
    case "whatif":
      return <WhatIfView />;
    case "tier":
      return <TierView />;
    case "conversations":
      return <ConversationsView />;
    case "conversation":
      return <ConversationView />;
    case "requests":
      return <RequestsView />;
    case "request":
      return <RequestView />;
    case "policy":
      return <PolicyView />;
    case "engines":
      return <EnginesView />;
    case "chat":
      return <ChatView />;
    default:
      return <Overview />;
  }
}

function Overview() {
  const hasEngine = logSpan.value !== null;
  const isQuiet = summary.data.value?.num_requests === 0 && summary.data.value.last_seq < 50;
  useEffect(() => {
    // The curl line names the model as the server does.
    const isAsked = models.value !== undefined || health.data.value === null || isAlone.value;
    if (isQuiet && isLive.value && !isAsked) void findModels();
  }, [isQuiet, isLive.value, health.data.value]);
  return (
    <main class="overview" id="main">
      <h1 class="unseen">Overview</h1>
      <Problem what="The log could not be read" error={engines.error.value ?? summary.error.value} />
      {hasEngine ? (
        <>
          <Sentence />
          {isQuiet && <EmptyTraffic />}
          <div class="first">
            <section class="panel timeline" aria-label="Timeline">
              <Strips />
            </section>
            <div class="side">
              <SwitchPanel />
              <TierPanel />
            </div>
          </div>
          <div class="second">
            <RecentRequests />
            <Feed />
          </div>
        </>
      ) : (
        engines.data.value !== null && <EmptyLog />
      )}
    </main>
  );
}
